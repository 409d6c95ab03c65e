#pragma once

namespace lab {

/// Error and signal numbers of macOS for those of Linux, and back. Numbers that both share map to themselves.
[[nodiscard]] int apple_error(int linux_error);
[[nodiscard]] int linux_error(int apple_error);
[[nodiscard]] int apple_signal(int linux_signal);
[[nodiscard]] int linux_signal(int apple_signal);

}  // namespace lab
