#pragma once

#include "machrun/image.hpp"

namespace lab {

/// Tells the C++ runtime's unwinder how to leave the image's functions, so that exceptions inside of it find their
/// handlers: from its __eh_frame, and on arm64 also from the compact entries of __unwind_info.
void register_frames(const Image& image);

}  // namespace lab
