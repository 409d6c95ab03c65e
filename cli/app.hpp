#pragma once

namespace lumelift {

/// The composition root: arguments and environment become options, signals are armed, one command runs, and what it throws
/// becomes an exit status. The only place that calls getenv. Never throws.
[[nodiscard]] int run_app(int argc, char** argv) noexcept;

}  // namespace lumelift
