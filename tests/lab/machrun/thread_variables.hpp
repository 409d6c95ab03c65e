#pragma once

#include "machrun/image.hpp"

namespace lab {

/// Makes an image's thread-local variables usable: each thread gets its copy of their initial content at first use.
void prepare_thread_variables(const Image& image);

}  // namespace lab
