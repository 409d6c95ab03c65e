#include "cli/completion.hpp"

#include <algorithm>

namespace lumelift {
namespace {

const OptionEntry* find_option(const std::vector<OptionEntry>& options, std::string_view name) {
  const auto found = std::find_if(options.begin(), options.end(), [&](const OptionEntry& one) {
    return std::find(one.names.begin(), one.names.end(), name) != one.names.end();
  });
  return found == options.end() ? nullptr : &*found;
}

/// What the words before the cursor mean.
struct Place {
  const CommandEntry* command;
  std::size_t arguments = 0;             ///< that stand already
  const OptionEntry* pending = nullptr;  ///< whose value is being typed
  std::vector<std::string> given;        ///< options that stand already
  bool foreign = false;                  ///< behind "--": words of another program
};

class Completer {
 public:
  Completer(const Reference& reference, const LiveNames& live) : reference_(reference), live_(live) {}

  Completion go(const std::vector<std::string>& words) {
    if (words.empty()) {
      return {};
    }
    const std::string& typed = words.back();
    const Place place = place_of(words);
    if (place.foreign) {
      return {{}, Completion::Also::files};
    }
    if (place.pending != nullptr) {
      return values(*place.pending, typed == "=" ? "" : typed, "");
    }
    if (typed.starts_with("-")) {
      return options(place, typed);
    }
    Completion out = arguments(place, typed);
    if (place.arguments == 0) {
      commands(*place.command, typed, out);
    }
    return out;
  }

 private:
  const OptionEntry* option_named(const CommandEntry& command, std::string_view name) const {
    const OptionEntry* own = find_option(command.options, name);
    return own != nullptr ? own : find_option(reference_.program.options, name);
  }

  const CommandEntry* child(const CommandEntry& command, const std::string& word) const {
    const std::string name = command.name.empty() ? word : command.name + " " + word;
    const auto found =
        std::find_if(reference_.commands.begin(), reference_.commands.end(), [&](const CommandEntry& one) { return one.name == name; });
    return found == reference_.commands.end() ? nullptr : &*found;
  }

  Place place_of(const std::vector<std::string>& words) const {
    Place place{&reference_.program, 0, nullptr, {}, false};
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      const std::string& word = words[i];
      if (place.pending != nullptr) {
        if (word != "=") {
          place.pending = nullptr;
        }
        continue;
      }
      if (word == "--") {
        place.foreign = true;
        return place;
      }
      if (word.starts_with("-")) {
        const std::string name = word.substr(0, word.find('='));
        const OptionEntry* option = option_named(*place.command, name);
        place.given.push_back(name);
        if (option != nullptr && !option->value.empty() && name == word) {
          place.pending = option;
        }
      } else if (const CommandEntry* next = place.arguments == 0 ? child(*place.command, word) : nullptr) {
        place.command = next;
      } else {
        ++place.arguments;
      }
    }
    return place;
  }

  Completion values(const OptionEntry& option, std::string_view typed, const std::string& before) const {
    Completion out;
    std::vector<std::string> all = option.choices;
    if (all.empty()) {
      all = live_(option.value);
    }
    for (const auto& value : all) {
      if (value.starts_with(typed)) {
        out.candidates.push_back({before + value, value == option.default_value ? "default" : ""});
      }
    }
    const std::string_view kind = option.value;
    if (kind == "FILE" || kind == "PATH" || kind == "PROFILE") {
      out.also = Completion::Also::files;
    }
    if (kind == "FOLDER" || kind == "BUNDLE") {
      out.also = Completion::Also::folders;
    }
    return out;
  }

  Completion options(const Place& place, const std::string& typed) const {
    if (const auto equals = typed.find('='); equals != std::string::npos) {
      const OptionEntry* option = option_named(*place.command, typed.substr(0, equals));
      return option == nullptr ? Completion{} : values(*option, typed.substr(equals + 1), typed.substr(0, equals + 1));
    }
    Completion out;
    const auto offer = [&](const OptionEntry& option) {
      const bool given = std::any_of(place.given.begin(), place.given.end(), [&](const auto& one) {
        return std::find(option.names.begin(), option.names.end(), one) != option.names.end();
      });
      // The long name says more; the short one is for fingers that know it.
      if ((!given || option.repeated) && option.names.back().starts_with(typed)) {
        out.candidates.push_back({option.names.back(), option.text});
      }
    };
    for (const auto& option : place.command->options) {
      offer(option);
    }
    if (place.command != &reference_.program) {
      for (const auto& option : reference_.program.options) {
        if (option.names.back() != "--help" && option.names.back() != "--version") {
          offer(option);
        }
      }
    }
    return out;
  }

  Completion arguments(const Place& place, std::string_view typed) const {
    const auto& all = place.command->arguments;
    if (place.arguments < all.size()) {
      return values(all[place.arguments], typed, "");
    }
    return !all.empty() && all.back().repeated ? values(all.back(), typed, "") : Completion{};
  }

  void commands(const CommandEntry& command, std::string_view typed, Completion& out) const {
    const std::string prefix = command.name.empty() ? "" : command.name + " ";
    for (const auto& one : reference_.commands) {
      const bool kin = one.name.starts_with(prefix) && one.name.find(' ', prefix.size()) == std::string::npos;
      const std::string word = kin ? one.name.substr(prefix.size()) : "";
      if (kin && word.starts_with(typed)) {
        out.candidates.push_back({word, one.text});
      }
    }
  }

  const Reference& reference_;
  const LiveNames& live_;
};

bool fits_a_line(const std::string& word) {
  return !word.empty() && std::none_of(word.begin(), word.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

}  // namespace

Completion complete(const Reference& reference, const std::vector<std::string>& words, const LiveNames& live) {
  return Completer(reference, live).go(words);
}

std::string lines_of(const Completion& completion) {
  std::string out;
  for (const auto& candidate : completion.candidates) {
    if (fits_a_line(candidate.insert)) {
      out += candidate.insert + "\t" + candidate.text + "\n";
    }
  }
  if (completion.also == Completion::Also::files) {
    out += ":files\n";
  }
  if (completion.also == Completion::Also::folders) {
    out += ":folders\n";
  }
  return out;
}

}  // namespace lumelift
