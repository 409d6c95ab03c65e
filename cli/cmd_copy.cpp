#include "cli/commands.hpp"
#include "cli/copy_to.hpp"
#include "cli/operation.hpp"

namespace lumelift {

int run_copy(Context& context, const CopyOptions& options) {
  const sys::Stopwatch watch;
  // Nothing of this is recorded or taken back, so it needs no lock; several can run at once.
  Operation operation(context, options.target, "copy", Operation::Touch::nothing);
  GuestLink& link = *operation.link;
  link.connect(sys::Deadline::in(sys::Milliseconds{20'000}), GuestLink::Wait::up);
  CopyReport report;
  report.vm = operation.found.name;
  report.from_guest = options.from;
  report.dry_run = options.dry_run;
  const std::vector<std::string> sources(options.paths.begin(), options.paths.end() - 1);
  try {
    if (options.from) {
      copy_out(link, context.console, sources, options.paths.back(), report);
    } else {
      CopyIn(link, context.console, options.verify ? Trust::nothing : Trust::manifest, options.connections)
          .go(sources, options.paths.back(), report);
    }
  } catch (const sys::Interrupted&) {
    context.console.say("interrupted; files that are complete stay, and the same command goes on from what was sent of the others");
    return 130;
  }
  report.spent = watch.elapsed();
  if (context.console.json()) {
    context.console.result_json(report.json());
  } else {
    context.console.result(report.text());
  }
  return 0;
}

}  // namespace lumelift
