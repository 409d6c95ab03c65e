#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/guest_verdict.hpp"
#include "cli/operation.hpp"
#include "cli/runtimes.hpp"
#include "host/sys/error.hpp"
#include "host/sys/file.hpp"

namespace lumelift {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::size_t largest_library = 64u << 20;
constexpr sys::Milliseconds guest_answer{15'000};

struct Inspected {
  std::string name;  ///< as the user wrote it
  Program program;
  InjectionVerdict verdict;
  const Runtime* runtime = nullptr;  ///< what it is built on, as far as its files tell
};

/// What a runtime does is known from a table; which one a program is built on, from its libraries and its own text.
const Runtime* runtime_of(const std::vector<Runtime>& table, const Program& program, const FileView& view) {
  if (!program.file) {
    return nullptr;
  }
  return recognise(table, program, {}, view.read(program.chain.program().path));
}

std::string_view headline(InjectionOutcome outcome) {
  switch (outcome) {
    case InjectionOutcome::works:
      return "works";
    case InjectionOutcome::ignored:
      return "ignored by dyld";
    case InjectionOutcome::killed:
      return "would be killed";
    case InjectionOutcome::aborts_children:
      return "aborts its arm64e children";
    case InjectionOutcome::needs_slice:
      return "needs another slice";
    case InjectionOutcome::not_needed:
      return "not needed";
    case InjectionOutcome::not_a_program:
      return "not a program";
    case InjectionOutcome::unreadable:
      break;
  }
  return "cannot be read";
}

Style style_of(InjectionOutcome outcome) {
  switch (outcome) {
    case InjectionOutcome::works:
      return Style::good;
    case InjectionOutcome::not_needed:
    case InjectionOutcome::not_a_program:
      return Style::dim;
    default:
      return Style::bad;
  }
}

/// "python3 → Python": the hops where a name changes.
std::string shown_chain(const LaunchChain& chain) {
  if (chain.links.size() < 2) {
    return {};
  }
  std::string out;
  for (const ChainLink& link : chain.links) {
    if (!out.empty()) {
      out += " → ";
    }
    out += link.system ? link.path : fs::path(link.path).filename().string();
  }
  return (chain.links.front().role == ChainLink::Role::script ? "script " : "") + out;
}

Json json_of(const PropertyDict& dict) {
  Json out = Json::object();
  for (const auto& [name, value] : dict) {
    if (const auto* granted = std::get_if<bool>(&value)) {
      out[name] = *granted;
    }
  }
  return out;
}

Json json_of(const CodeSignature& signature, const SignatureCheck& check) {
  Json out = {{"identifier", signature.identifier},
              {"team_id", signature.team_id.empty() ? Json(nullptr) : Json(signature.team_id)},
              {"flags", signature.flags},
              {"adhoc", signature.has(SignatureFlag::adhoc)},
              {"linker_signed", signature.has(SignatureFlag::linker_signed)},
              {"hardened_runtime", signature.has(SignatureFlag::hardened_runtime)},
              {"library_validation", signature.has(SignatureFlag::library_validation)},
              {"restrict", signature.has(SignatureFlag::restricted)},
              {"page_size", signature.page_size},
              {"pages", signature.page_count},
              {"cdhash", check.checked ? Json(check.cdhash) : Json(nullptr)},
              {"intact", check.checked ? Json(check.intact()) : Json(nullptr)}};
  Json damaged = Json::array();
  for (const auto& page : check.pages) {
    damaged.push_back(page.index);
  }
  out["damaged_pages"] = damaged;
  out["entitlements_xml"] = signature.entitlements_xml ? json_of(*signature.entitlements_xml) : Json(nullptr);
  out["entitlements_der"] = signature.entitlements_der ? json_of(*signature.entitlements_der) : Json(nullptr);
  return out;
}

Json json_of(const Slice& slice, const SignatureCheck& check) {
  static constexpr const char* types[] = {"program", "library", "bundle", "object", "other"};
  Json libraries = Json::array();
  for (const auto& library : slice.libraries) {
    libraries.push_back({{"path", library.path}, {"weak", library.weak}});
  }
  std::string uuid;
  for (const std::byte byte : slice.uuid.value_or(std::array<std::byte, 16>{})) {
    static constexpr char digits[] = "0123456789abcdef";
    uuid += digits[static_cast<unsigned>(byte) >> 4];
    uuid += digits[static_cast<unsigned>(byte) & 15];
  }
  return {{"cpu", shown(slice.cpu)},
          {"type", types[static_cast<std::size_t>(slice.type)]},
          {"platform", shown(slice.platform)},
          {"minimum_os", slice.platform == Platform::unknown ? Json(nullptr) : Json(shown(slice.minimum_os))},
          {"uuid", slice.uuid ? Json(uuid) : Json(nullptr)},
          {"install_name", slice.install_name.empty() ? Json(nullptr) : Json(slice.install_name)},
          {"libraries", libraries},
          {"rpaths", slice.rpaths},
          {"encrypted", slice.encrypted},
          {"restrict_section", slice.restrict_section},
          {"signature", slice.signature ? json_of(*slice.signature, check) : Json(nullptr)}};
}

Json json_of(const Inspected& file) {
  static constexpr const char* roles[] = {"symlink", "bundle", "script", "tool", "shell", "stub", "program"};
  static constexpr const char* metal[] = {"linked", "possible", "none"};
  Json chain = Json::array();
  for (const ChainLink& link : file.program.chain.links) {
    chain.push_back({{"role", roles[static_cast<std::size_t>(link.role)]}, {"path", link.path}, {"system", link.system}});
  }
  Json slices = Json::array();
  if (file.program.file) {
    for (std::size_t i = 0; i < file.program.file->slices.size(); ++i) {
      slices.push_back(json_of(file.program.file->slices[i], file.program.checks[i]));
    }
  }
  return {{"file", file.name},
          {"verdict", name_of(file.verdict.outcome)},
          {"acceptable", file.verdict.acceptable()},
          {"reason", file.verdict.reason},
          {"remedy", file.verdict.remedy.empty() ? Json(nullptr) : Json(file.verdict.remedy)},
          {"notes", file.verdict.notes},
          {"chain", chain},
          {"metal", file.program.file ? Json(metal[static_cast<std::size_t>(file.program.metal)]) : Json(nullptr)},
          {"missing_libraries", file.program.missing},
          {"runtime", file.runtime ? Json(file.runtime->name) : Json(nullptr)},
          {"first_guess", file.runtime ? Json(first_guess(*file.runtime)) : Json(nullptr)},
          {"slices", slices}};
}

/// Names and reasons quote the file, which may hold line breaks that would fake a row.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

/// The table, and below each row what a reader must know about it.
std::string text_of(const Console& console, const std::vector<Inspected>& files) {
  std::vector<std::vector<std::string>> rows;
  for (const Inspected& file : files) {
    const std::string chain = shown_chain(file.program.chain);
    rows.push_back({one_line(file.name), one_line(summary(file.program)), one_line(chain),
                    console.styled(headline(file.verdict.outcome), style_of(file.verdict.outcome))});
  }
  const std::string aligned = table(rows);
  std::string out;
  std::size_t at = 0;
  for (const Inspected& file : files) {
    const auto end = std::min(aligned.find('\n', at), aligned.size());
    out += aligned.substr(at, end - at) + "\n";
    at = end + 1;
    if (file.verdict.outcome != InjectionOutcome::works) {
      out += "  " + one_line(file.verdict.reason) + "\n";
    }
    for (const auto& note : file.verdict.notes) {
      out += "  note: " + one_line(note) + "\n";
    }
    if (file.runtime) {
      out += "  first guess: " + first_guess(*file.runtime) + "\n";
    }
    if (!file.verdict.remedy.empty()) {
      out += "  remedy: " + one_line(file.verdict.remedy) + "\n";
    }
  }
  return out;
}

/// The slices of the library that would be injected; where none is installed, those that every build of it has.
InjectionTerms terms_for(const Context& context) {
  InjectionTerms terms;
  const fs::path library = context.libexec / "liblumelift-metal.dylib";
  std::error_code failure;
  if (!fs::exists(library, failure)) {
    context.console.warn("no library at " + library.string() + "; its usual slices (arm64, x86_64) are assumed");
    return terms;
  }
  terms.library_slices = slices_of(sys::read_file(library, largest_library));
  return terms;
}

int status_of(const std::vector<Inspected>& files) {
  int status = 0;
  for (const Inspected& file : files) {
    if (file.verdict.outcome == InjectionOutcome::unreadable) {
      return exit_status(ErrorKind::usage);
    }
    if (!file.verdict.acceptable() && file.verdict.outcome != InjectionOutcome::not_a_program) {
      status = exit_status(ErrorKind::unproven);
    }
  }
  return status;
}

}  // namespace

int run_inspect(Context& context, const InspectOptions& options) {
  const auto table = load_runtimes(context.templates);
  InjectionTerms terms = terms_for(context);
  std::unique_ptr<Operation> operation;
  FileView view = host_files();
  std::string home;
  if (!options.target.vm.empty()) {
    operation = std::make_unique<Operation>(context, options.target, "inspect", Operation::Touch::nothing);
    const GuestFacts facts = operation->link->guest().facts(sys::Deadline::in(guest_answer));
    terms = guest_terms(facts, terms.library_slices);
    view = guest_files(*operation->link);
    home = facts.home;
  }
  std::vector<Inspected> files;
  for (const std::string& name : options.files) {
    const bool looked_up = operation && name.find('/') == name.npos;
    const std::string path = !operation  ? fs::absolute(name).lexically_normal().string()
                             : looked_up ? program_path({name}, view)
                                         : guest_path(name, home);
    Inspected file{name, examine({path}, view), {}, nullptr};
    file.verdict = injection_verdict(file.program, terms);
    file.runtime = runtime_of(table, file.program, view);
    files.push_back(std::move(file));
  }
  if (!context.console.json()) {
    context.console.result(text_of(context.console, files));
    return status_of(files);
  }
  Json slices = Json::array();
  for (const Cpu cpu : terms.library_slices) {
    slices.push_back(shown(cpu));
  }
  Json all = {{"vm", operation ? Json(operation->found.name) : Json(nullptr)}, {"library_slices", slices}, {"files", Json::array()}};
  for (const Inspected& file : files) {
    all["files"].push_back(json_of(file));
  }
  // Names from a file need not be UTF-8; what is not becomes the replacement character.
  context.console.result_json(all.dump(-1, ' ', false, Json::error_handler_t::replace));
  return status_of(files);
}

}  // namespace lumelift
