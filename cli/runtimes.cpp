#include "cli/runtimes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/yaml_reader.hpp"
#include "host/sys/error.hpp"

namespace lumelift {
namespace {

constexpr std::uint64_t schema = 1;
constexpr std::uint64_t first_family = 1001, last_family = 5099;

std::vector<std::string> texts(const YamlValue& map, std::string_view key) {
  std::vector<std::string> out;
  for (const YamlValue& item : map.at(key).items()) {
    out.push_back(item.text());
    if (out.back().empty()) {
      throw item.problem("an empty text would match everything");
    }
  }
  return out;
}

template <class Value>
Value one_of(const YamlValue& value, const std::vector<std::pair<std::string_view, Value>>& known) {
  const std::string text = value.text();
  std::vector<std::string_view> names;
  for (const auto& [name, meant] : known) {
    if (name == text) {
      return meant;
    }
    names.push_back(name);
  }
  throw value.problem(fmt::format("one of {} is needed here", fmt::join(names, ", ")));
}

Runtime read_runtime(const YamlValue& map) {
  map.expect_keys({"name", "recognised_by", "gain", "fast_from", "with_metal3", "meaning", "source", "date"});
  Runtime out;
  out.name = map.at("name").text();
  const YamlValue marks = map.at("recognised_by");
  marks.expect_keys({"libraries", "programs", "words", "text"});
  out.libraries = texts(marks, "libraries");
  out.programs = texts(marks, "programs");
  out.words = texts(marks, "words");
  out.texts = texts(marks, "text");
  out.gain = one_of<Gain>(map.at("gain"), {{"large", Gain::large}, {"none", Gain::none}, {"unknown", Gain::unknown}});
  for (const YamlValue& family : map.at("fast_from").items()) {
    out.fast_from.push_back(static_cast<int>(family.number(first_family, last_family)));
  }
  out.with_metal3 = one_of<WithMetal3>(map.at("with_metal3"), {{"breaks", WithMetal3::breaks},
                                                               {"half-fast", WithMetal3::half_fast},
                                                               {"unaffected", WithMetal3::unaffected},
                                                               {"unknown", WithMetal3::unknown}});
  out.meaning = map.at("meaning").text();
  out.source = map.at("source").text();
  out.date = map.at("date").text();
  if (out.meaning.empty() || out.source.empty() || out.date.empty()) {
    throw map.problem("a row needs its meaning, its source and the date of it");
  }
  if (out.gain == Gain::large && out.fast_from.empty()) {
    throw map.problem("a large gain must say from which family on");
  }
  return out;
}

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

bool links(const Runtime& runtime, const Program& program) {
  const Slice* slice = program.file ? running_slice(*program.file) : nullptr;
  if (slice == nullptr) {
    return false;
  }
  return std::any_of(slice->libraries.begin(), slice->libraries.end(), [&](const LinkedLibrary& library) {
    const std::string name = file_name(library.path);
    return std::any_of(runtime.libraries.begin(), runtime.libraries.end(),
                       [&](const std::string& start) { return name.starts_with(start); });
  });
}

}  // namespace

std::vector<Runtime> load_runtimes(const std::filesystem::path& templates) {
  const YamlValue top = YamlValue::load(templates / "runtimes.yaml", "runtimes-invalid");
  top.expect_schema(schema);
  top.expect_keys({"schema", "runtimes"});
  std::vector<Runtime> out;
  for (const YamlValue& row : top.at("runtimes").items()) {
    out.push_back(read_runtime(row));
  }
  return out;
}

const Runtime* recognise(const std::vector<Runtime>& table, const Program& program, const std::vector<std::string>& command,
                         std::string_view content) {
  const std::string name = program.chain.found() ? file_name(program.chain.program().path) : std::string();
  const auto first = [&](const auto& fits) -> const Runtime* {
    const auto found = std::find_if(table.begin(), table.end(), fits);
    return found == table.end() ? nullptr : &*found;
  };
  // What is linked says more than a name, a name more than a text within the file.
  if (const auto* by_library = first([&](const Runtime& r) { return links(r, program); })) {
    return by_library;
  }
  if (const auto* by_name = first([&](const Runtime& r) { return contains(r.programs, name); })) {
    return by_name;
  }
  if (const auto* by_text = first([&](const Runtime& r) {
        return std::any_of(r.texts.begin(), r.texts.end(), [&](const std::string& text) { return content.find(text) != content.npos; });
      })) {
    return by_text;
  }
  return first([&](const Runtime& r) {
    return std::any_of(command.begin(), command.end(), [&](const std::string& word) {
      // "mlx_lm.generate", "-m mlx_lm", "/opt/x/bin/mlx_lm"
      const std::string last = file_name(word);
      return contains(r.words, last) || contains(r.words, last.substr(0, last.find('.')));
    });
  });
}

const Runtime& named_runtime(const std::vector<Runtime>& table, std::string_view name) {
  std::vector<std::string> names;
  for (const auto& runtime : table) {
    if (runtime.name == name) {
      return runtime;
    }
    names.push_back(runtime.name);
  }
  throw Error(ErrorKind::usage, "runtime-unknown", fmt::format("the table knows no runtime '{}'", name))
      .fix(fmt::format("there are: {}", fmt::join(names, ", ")));
}

std::string first_guess(const Runtime& runtime) {
  std::string out = runtime.name + ": ";
  switch (runtime.gain) {
    case Gain::large:
      out += "large gain expected";
      break;
    case Gain::none:
      out += "no gain expected: already fast";
      break;
    case Gain::unknown:
      out += "gain unknown";
      break;
  }
  return runtime.with_metal3 == WithMetal3::breaks ? out + "; would break if Metal 3 were claimed" : out;
}

}  // namespace lumelift
