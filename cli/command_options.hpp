#pragma once

#include "cli/commands.hpp"
#include "cli/fleet_options.hpp"
#include "cli/login.hpp"

namespace CLI {
class App;
}

namespace lumelift {

/// Options that several commands share, and those of the commands that have many. What the second argument refers to is written when
/// the words are read.
void add_options(CLI::App& command, LoginSources& login);
void add_options(CLI::App& command, LibraryOptions& library);
void add_options(CLI::App& command, FleetOptions& fleet);
void add_options(CLI::App& command, BenchOptions& bench);
void add_options(CLI::App& command, ReportOptions& report);

/// VM, time limit and login.
void add_target(CLI::App& command, TargetOptions& target, LoginSources& login, bool vm_required);

}  // namespace lumelift
