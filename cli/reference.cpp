#include "cli/reference.hpp"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cctype>

#include "cli/examples.hpp"
#include "cli/file_keys.hpp"
#include "host/sys/error.hpp"
#include "host/sys/file.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;

/// "TEXT:{auto,always,never}" to its three words.
std::vector<std::string> choices_in(const std::string& type) {
  const auto open = type.find('{'), close = type.find('}');
  std::vector<std::string> out;
  if (open == std::string::npos || close == std::string::npos) {
    return out;
  }
  for (std::size_t at = open + 1; at < close;) {
    const std::size_t end = std::min(type.find(',', at), close);
    out.push_back(type.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

/// What stands for the value: a name of ours as it is, the library's type names in our own words.
std::string placeholder(const std::string& type, const std::vector<std::string>& choices) {
  if (!choices.empty()) {
    return fmt::format("{}", fmt::join(choices, "|"));
  }
  const std::string base = type.substr(0, type.find(':'));
  if (base == "INT" || base == "UINT") {
    return "N";
  }
  if (base == "FLOAT") {
    return "X";
  }
  return base;
}

OptionEntry entry_of(const CLI::Option& option) {
  OptionEntry out;
  for (const auto& name : option.get_snames()) {
    out.names.push_back("-" + name);
  }
  for (const auto& name : option.get_lnames()) {
    out.names.push_back("--" + name);
  }
  const bool argument = out.names.empty();
  if (argument) {
    out.names.push_back(option.get_name(true));
  }
  const bool flag = option.get_items_expected_max() == 0;
  const std::string type = option.get_type_name();
  if (!flag) {
    out.choices = choices_in(type);
    out.value = argument ? out.names.front() : placeholder(type, out.choices);
    out.default_value = option.get_default_str();
  }
  out.text = option.get_description();
  out.variable = option.get_envname();
  out.required = option.get_required();
  out.repeated = option.get_items_expected_max() > 1 || (!flag && option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll);
  return out;
}

CommandEntry entry_of(const CLI::App& app, const std::string& name) {
  CommandEntry out{name, app.get_description(), examples_of(name), {}, {}};
  for (const CLI::Option* option : app.get_options([](const CLI::Option* one) { return !one->get_group().empty(); })) {
    (option->get_positional() ? out.arguments : out.options).push_back(entry_of(*option));
  }
  return out;
}

void gather(const CLI::App& app, const std::string& prefix, std::vector<CommandEntry>& out) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); })) {
    out.push_back(entry_of(*command, prefix + command->get_name()));
    gather(*command, out.back().name + " ", out);
  }
}

// man(7)

/// Text that roff prints as it stands: no escapes, no requests at the start of a line, hyphens that can be searched and
/// copied.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (out.empty() || out.back() == '\n') {
      if (c == '.' || c == '\'') {
        out += "\\&";
      }
    }
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '`') {
      out += "\\(ga";
    } else if (c == '^') {
      out += "\\(ha";
    } else if (c == '~') {
      out += "\\(ti";
    } else {
      out += c;
    }
  }
  return out;
}

std::string sentence(std::string text) {
  if (!text.empty()) {
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  }
  if (!text.empty() && text.back() != '.') {
    text += '.';
  }
  return text;
}

std::string roff_synopsis(const CommandEntry& command) {
  std::string out = ".B " + roff(command.name.empty() ? "lumelift" : "lumelift " + command.name) + "\n";
  for (const auto& argument : command.arguments) {
    const std::string word = "\\fI" + roff(argument.value) + "\\fR" + (argument.repeated ? "\\&..." : "");
    out += argument.required ? word + "\n" : "[" + word + "]\n";
  }
  if (!command.options.empty()) {
    out += "[\\fIOPTIONS\\fR]\n";
  }
  // A command line of the guest is no argument of ours; the text of the command names it.
  if (command.text.find("-- CMD") != std::string::npos) {
    const bool optional = command.text.find("[-- CMD") != std::string::npos || command.text.find("or --") != std::string::npos;
    out += fmt::format("{}\\-\\- \\fICMD\\fR \\fIARG\\fR\\&...{}\n", optional ? "[" : "", optional ? "]" : "");
  }
  return out;
}

/// It may be given again, and its own text does not say so.
bool repeats_unsaid(const OptionEntry& entry) {
  return entry.repeated && entry.text.find("again for more") == std::string::npos;
}

std::string roff_options(const std::vector<OptionEntry>& entries) {
  std::string out;
  for (const auto& entry : entries) {
    std::vector<std::string> names;
    const bool argument = entry.value == entry.names.front();
    for (const auto& name : entry.names) {
      names.push_back(fmt::format("\\f{}{}\\fR", argument ? 'I' : 'B', roff(name)));
    }
    const std::string value = argument || entry.value.empty() ? "" : " \\fI" + roff(entry.value) + "\\fR";
    out += fmt::format(".TP\n{}{}\n{}\n", fmt::join(names, ", "), value, roff(sentence(entry.text)));
    if (!argument && repeats_unsaid(entry)) {
      out += "May be given again.\n";
    }
    if (!entry.default_value.empty()) {
      out += fmt::format("Default: {}.\n", roff(entry.default_value));
    }
    if (!entry.variable.empty()) {
      out += fmt::format("Environment: \\fB{}\\fR.\n", roff(entry.variable));
    }
  }
  return out;
}

std::string roff_section(std::string_view title, std::string_view text) {
  return text.empty() ? "" : fmt::format(".SH {}\n{}", title, text);
}

/// What a command's exit status says besides; empty for most.
std::string_view own_exits(std::string_view command) {
  if (command == "run") return "The program's own status is passed on: 128 + N after signal N, 255 where there was none.";
  if (command == "inspect") return "0: the library can be injected, or the file is none to run. 5: it cannot. 2: a file cannot be read.";
  if (command == "fleet") return "With plan --exit-code 2 says that something would change.";
  return {};
}

std::string roff_exits(std::string_view command) {
  std::string out;
  if (const auto own = own_exits(command); !own.empty()) {
    out += roff(own) + "\n";
  }
  for (const auto& exit : exit_statuses()) {
    out += fmt::format(".TP\n\\fB{}\\fR\n{}\n", exit.status, roff(sentence(exit.meaning)));
  }
  return out;
}

// Markdown

/// A cell of a table: a bar in it would end it.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '|' ? "\\|" : std::string(1, c);
  }
  return out;
}

std::string markdown_table(const std::vector<OptionEntry>& entries) {
  std::string out = "| option | meaning | default | environment |\n| --- | --- | --- | --- |\n";
  for (const auto& entry : entries) {
    const bool argument = entry.value == entry.names.front();
    const std::string value = argument || entry.value.empty() ? "" : " " + entry.value;
    std::string text = entry.text;
    if (entry.required) {
      text += " (required)";
    }
    if (!argument && repeats_unsaid(entry)) {
      text += " (repeatable)";
    }
    out += fmt::format("| `{}` | {} | {} | {} |\n",
                       cell(fmt::format("{}{}{}", fmt::join(entry.names, ", "), value, argument && entry.repeated ? "…" : "")), cell(text),
                       entry.default_value.empty() ? "" : "`" + cell(entry.default_value) + "`",
                       entry.variable.empty() ? "" : "`" + entry.variable + "`");
  }
  return out + "\n";
}

}  // namespace

Reference reference_of(const CLI::App& app) {
  Reference out{entry_of(app, ""), {}};
  gather(app, "", out.commands);
  return out;
}

const std::vector<ExitEntry>& exit_statuses() {
  static const std::vector<ExitEntry> all = {
      {0, "done, or already so"},
      {1, "failed; everything that was done is undone"},
      {2, "wrong usage, profile, workload, settings or file; nothing was touched"},
      {3, "something could not be undone, or was changed by somebody else and left alone: see status"},
      {4, "another lumelift holds the lock, or the VM is not in a state to act on"},
      {5, "what was promised is not shown, by the probe, a workload, a bundle or a report; what was done is undone"},
      {6, "this Mac keeps lumelift from the guest by Local Network privacy: the VM may be well; what was done is undone"},
      {130,
       "interrupted; everything that was done is undone. A second signal, from 0.2 s after the first, ends lumelift at once: what is left "
       "is taken back by the next unlock or rollback"},
  };
  return all;
}

std::string page_name(const CommandEntry& command) {
  std::string out = command.name.empty() ? "lumelift" : "lumelift-" + command.name;
  std::replace(out.begin(), out.end(), ' ', '-');
  return out;
}

std::string man_page(const Reference& reference, const CommandEntry& command, const std::string& version) {
  const bool whole = command.name.empty();
  std::string title = page_name(command);
  std::transform(title.begin(), title.end(), title.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string out = fmt::format(".TH {} 1 \"\" \"lumelift {}\" \"lumelift manual\"\n.SH NAME\n{} \\- {}\n", roff(title), roff(version),
                                roff(page_name(command)), roff(command.text));
  out += roff_section("SYNOPSIS", whole ? ".B lumelift\n[\\fIOPTIONS\\fR]\n[\\fICOMMAND\\fR]\n" : roff_synopsis(command));
  if (whole) {
    out += ".SH DESCRIPTION\nWithout a command: the VMs, where each of them stands, and what to do next.\n";
    std::string list;
    for (const auto& one : reference.commands) {
      list += fmt::format(".TP\n\\fBlumelift {}\\fR\n{}\n", roff(one.name), roff(sentence(one.text)));
    }
    out += roff_section("COMMANDS", list);
  }
  out += roff_section("ARGUMENTS", roff_options(command.arguments));
  out += roff_section("OPTIONS", roff_options(command.options));
  if (!whole) {
    auto shared = reference.program.options;
    std::erase_if(shared, [](const OptionEntry& entry) { return entry.names.front() == "-h"; });  // a command has its own
    out += roff_section("OPTIONS OF ALL COMMANDS", roff_options(shared));
  }
  out += roff_section("EXIT STATUS", roff_exits(command.name));
  if (!command.examples.empty()) {
    out += roff_section("EXAMPLES", ".nf\n" + roff(command.examples) + "\n.fi\n");
  }
  std::string see;
  for (const auto& one : reference.commands) {
    const bool kin = whole || one.name.starts_with(command.name + " ");
    if (kin) {
      see += fmt::format(".BR {} (1),\n", roff(page_name(one)));
    }
  }
  if (!whole) {
    see += ".BR lumelift (1),\n";
  }
  return out + roff_section("SEE ALSO", see.substr(0, see.size() - 2) + "\n");
}

std::string markdown(const Reference& reference) {
  std::string out = "## Exit statuses\n\n| status | meaning |\n| --- | --- |\n";
  for (const auto& exit : exit_statuses()) {
    out += fmt::format("| {} | {} |\n", exit.status, exit.meaning);
  }
  out += "\n## Options of all commands\n\n" + markdown_table(reference.program.options);
  for (const auto& command : reference.commands) {
    std::vector<OptionEntry> entries = command.arguments;
    entries.insert(entries.end(), command.options.begin(), command.options.end());
    out += fmt::format("## `lumelift {}`\n\n{}\n\n", command.name, sentence(command.text));
    if (!entries.empty()) {
      out += markdown_table(entries);
    }
    if (!command.examples.empty()) {
      out += fmt::format("```\n{}\n```\n\n", command.examples);
    }
  }
  out.pop_back();
  return out;
}

void write_reference(const Reference& reference, const fs::path& folder, const std::string& version) {
  std::error_code fault;
  for (const char* name : {"man", "schemas"}) {
    fs::create_directories(folder / name, fault);
    if (fault) {
      throw Error(ErrorKind::usage, "file-unwritable", fmt::format("'{}' cannot be made: {}", (folder / name).string(), fault.message()));
    }
  }
  const auto write_page = [&](const CommandEntry& command) {
    sys::write_file(folder / "man" / (page_name(command) + ".1"), man_page(reference, command, version), 0644);
  };
  write_page(reference.program);
  for (const auto& command : reference.commands) {
    write_page(command);
  }
  sys::write_file(folder / "commands.md", markdown(reference), 0644);
  for (const auto& format : file_formats()) {
    sys::write_file(folder / "schemas" / fmt::format("{}.schema.json", format.name), json_schema(format), 0644);
  }
}

}  // namespace lumelift
