#include "cli/yaml_reader.hpp"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

#include "host/sys/file.hpp"

namespace lumelift {
namespace {

constexpr std::size_t file_cap = 1u << 20;

/// True for a plain scalar that YAML 1.1 or 1.2 resolves to null or a boolean.
bool reads_as_word(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  static const std::set<std::string> words = {"", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  return words.contains(text);
}

/// True for a plain scalar that some YAML version resolves to a number: decimal, octal, hexadecimal, real, sexagesimal.
bool reads_as_number(std::string_view text) {
  if (!text.empty() && (text.front() == '+' || text.front() == '-')) {
    text.remove_prefix(1);
  }
  if (text.empty()) {
    return false;
  }
  if (text == ".inf" || text == ".Inf" || text == ".INF" || text == ".nan" || text == ".NaN" || text == ".NAN") {
    return true;
  }
  const bool digit_first = text.front() >= '0' && text.front() <= '9';
  const bool dot_digit = text.front() == '.' && text.size() > 1 && text[1] >= '0' && text[1] <= '9';
  if (!digit_first && !dot_digit) {
    return false;
  }
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'o' || text[1] == 'b')) {
    return text.find_first_not_of("0123456789abcdefABCDEF_", 2) == std::string_view::npos;
  }
  const auto exponent = text.find_first_of("eE");
  if (exponent != std::string_view::npos) {
    std::string_view power = text.substr(exponent + 1);
    if (!power.empty() && (power.front() == '+' || power.front() == '-')) {
      power.remove_prefix(1);
    }
    if (power.empty() || power.find_first_not_of("0123456789") != std::string_view::npos) {
      return false;
    }
    text = text.substr(0, exponent);
  }
  const auto dots = std::count(text.begin(), text.end(), '.');
  return dots <= 1 && text.find_first_not_of("0123456789_.:") == std::string_view::npos;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const std::size_t substituted = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, substituted});
      // Two letters the wrong way round are one slip.
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

/// How a scalar was written. Quoted, or marked !!str: a string whatever it looks like.
enum class Written { plain, as_string, with_other_tag };
Written written(const YAML::Node& node) {
  const std::string& tag = node.Tag();
  if (tag.empty() || tag == "?") {
    return Written::plain;
  }
  return tag == "!" || tag == "tag:yaml.org,2002:str" ? Written::as_string : Written::with_other_tag;
}

}  // namespace

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

namespace {

/// Some malformed texts, such as "&a: ~" above "? b", make yaml-cpp 0.7 report nodes without end, and take memory for each. No
/// text has more than a few for each of its bytes.
class EndlessGuard final : public YAML::EventHandler {
 public:
  explicit EndlessGuard(std::size_t bytes) : left_(8 * bytes + 64) {}
  void OnDocumentStart(const YAML::Mark& at) override { count(at); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& at, YAML::anchor_t) override { count(at); }
  void OnAlias(const YAML::Mark& at, YAML::anchor_t) override { count(at); }
  void OnScalar(const YAML::Mark& at, const std::string&, YAML::anchor_t, const std::string&) override { count(at); }
  void OnSequenceStart(const YAML::Mark& at, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override { count(at); }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& at, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override { count(at); }
  void OnMapEnd() override {}

 private:
  void count(const YAML::Mark& at) {
    if (left_-- == 0) {
      throw YAML::ParserException(at, "this cannot be read as YAML");
    }
  }
  std::size_t left_;
};

void require_an_end(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  EndlessGuard guard(text.size());
  while (parser.HandleNextDocument(guard)) {
  }
}

}  // namespace

struct YamlValue::Impl {
  YAML::Node node;
  std::string file, error_id;
  int line = 0, column = 0;  // from zero, as the parser counts
};

YamlValue YamlValue::parse(std::string_view text, std::string name, std::string error_id) {
  auto impl = std::make_shared<Impl>();
  impl->file = std::move(name);
  impl->error_id = std::move(error_id);
  const YamlValue start(impl);
  if (text.starts_with("\xef\xbb\xbf")) {
    text.remove_prefix(3);
  }
  if (text.find('\0') != std::string_view::npos) {
    throw start.problem("the file holds a NUL byte; it is not a YAML text");
  }
  try {
    const std::string whole(text);
    require_an_end(whole);
    const std::vector<YAML::Node> documents = YAML::LoadAll(whole);
    if (documents.empty() || documents[0].IsNull()) {
      throw start.problem("the file is empty");
    }
    if (documents.size() > 1) {
      throw start.problem("the file holds more than one document");
    }
    impl->node = documents[0];
  } catch (const YAML::Exception& e) {
    impl->line = e.mark.is_null() ? 0 : e.mark.line;
    impl->column = e.mark.is_null() ? 0 : e.mark.column;
    throw start.problem(e.msg);
  }
  return start;
}

YamlValue YamlValue::load(const std::filesystem::path& file, std::string error_id) {
  return parse(sys::read_file(file, file_cap), file.string(), std::move(error_id));
}

YamlValue YamlValue::wrap(const void* node, int fallback_line, int fallback_column) const {
  auto impl = std::make_shared<Impl>();
  impl->node = *static_cast<const YAML::Node*>(node);
  impl->file = impl_->file;
  impl->error_id = impl_->error_id;
  const YAML::Mark mark = impl->node.Mark();
  // Where there is nothing, the parser's mark is that of whatever comes next.
  const bool own_place = !mark.is_null() && !(impl->node.IsNull() && mark.line > fallback_line);
  impl->line = own_place ? mark.line : fallback_line;
  impl->column = own_place ? mark.column : fallback_column;
  return YamlValue(impl);
}

Error YamlValue::problem(std::string_view message) const {
  return Error(ErrorKind::usage, impl_->error_id, fmt::format("{}:{}:{}: {}", impl_->file, impl_->line + 1, impl_->column + 1, message));
}

bool YamlValue::is_map() const {
  return impl_->node.IsMap();
}
bool YamlValue::is_list() const {
  return impl_->node.IsSequence();
}
bool YamlValue::is_scalar() const {
  return impl_->node.IsScalar();
}

std::vector<YamlValue> YamlValue::items() const {
  if (!is_list()) {
    throw problem("a list is needed here");
  }
  std::vector<YamlValue> out;
  for (const auto& item : impl_->node) {
    out.push_back(wrap(&static_cast<const YAML::Node&>(item), impl_->line, impl_->column));
  }
  return out;
}

std::vector<std::pair<YamlValue, YamlValue>> YamlValue::entries() const {
  if (!is_map()) {
    throw problem("a mapping is needed here");
  }
  std::vector<std::pair<YamlValue, YamlValue>> out;
  std::set<std::string> seen;
  for (const auto& entry : impl_->node) {
    const YamlValue key = wrap(&entry.first, impl_->line, impl_->column);
    if (!key.is_scalar()) {
      throw key.problem("a key must be plain text");
    }
    if (!seen.insert(entry.first.Scalar()).second) {
      throw key.problem(fmt::format("the key '{}' stands twice", entry.first.Scalar()));
    }
    out.emplace_back(key, wrap(&entry.second, key.impl_->line, key.impl_->column));
  }
  return out;
}

void YamlValue::expect_keys(std::span<const FileKey> known) const {
  std::vector<std::string> names;
  for (const auto& key : known) {
    names.emplace_back(key.name);
  }
  expect_names(names);
}

void YamlValue::expect_keys(std::initializer_list<std::string_view> known) const {
  expect_names(std::vector<std::string>(known.begin(), known.end()));
}

void YamlValue::expect_names(const std::vector<std::string>& known) const {
  for (const auto& [key, value] : entries()) {
    const std::string name = key.impl_->node.Scalar();
    if (std::find(known.begin(), known.end(), name) != known.end()) {
      continue;
    }
    const auto meant = nearest(name, known);
    throw key.problem(meant ? fmt::format("unknown key '{}'; did you mean '{}'?", name, *meant)
                            : fmt::format("unknown key '{}'; known here: {}", name, fmt::join(known, ", ")));
  }
}

std::optional<YamlValue> YamlValue::find(std::string_view key) const {
  for (const auto& [name, value] : entries()) {
    if (name.impl_->node.Scalar() == key) {
      return value;
    }
  }
  return std::nullopt;
}

YamlValue YamlValue::at(std::string_view key) const {
  if (auto value = find(key)) {
    return *value;
  }
  throw problem(fmt::format("the key '{}' is missing", key));
}

std::string YamlValue::string() const {
  if (is_scalar() && written(impl_->node) == Written::plain && reads_as_number(impl_->node.Scalar())) {
    throw problem(fmt::format("a string is needed here, and YAML reads {} as a number: put it in quotes", impl_->node.Scalar()));
  }
  return text();
}

std::string YamlValue::text() const {
  if (!is_scalar()) {
    throw problem(impl_->node.IsNull() ? "a string is needed here, and there is nothing: write \"\" for an empty one"
                                       : "a string is needed here");
  }
  const std::string value = impl_->node.Scalar();
  if (written(impl_->node) == Written::with_other_tag) {
    throw problem(fmt::format("a string is needed here, without the tag {}", impl_->node.Tag()));
  }
  if (written(impl_->node) == Written::plain && reads_as_word(value)) {
    throw problem(fmt::format("a string is needed here, and YAML may read {} as a boolean or as nothing: put it in quotes", value));
  }
  if (value.find('\0') != std::string::npos) {
    throw problem("a NUL byte cannot stand in a string");
  }
  return value;
}

std::uint64_t YamlValue::number(std::uint64_t least, std::uint64_t most) const {
  const std::string value = is_scalar() ? impl_->node.Scalar() : std::string();
  std::uint64_t out = 0;
  const auto [end, fault] = std::from_chars(value.data(), value.data() + value.size(), out);
  const bool plain = is_scalar() && written(impl_->node) == Written::plain && fault == std::errc{} && end == value.data() + value.size() &&
                     !value.empty() && (value.size() == 1 || value.front() != '0');
  if (!plain || out < least || out > most) {
    throw problem(
        fmt::format("a whole number from {} to {} is needed here{}", least, most, value.empty() ? "" : fmt::format(", not {}", value)));
  }
  return out;
}

bool YamlValue::boolean() const {
  const std::string value = is_scalar() && written(impl_->node) == Written::plain ? impl_->node.Scalar() : std::string();
  if (value == "true") {
    return true;
  }
  if (value == "false") {
    return false;
  }
  throw problem("true or false is needed here, without quotes");
}

void YamlValue::expect_schema(std::uint64_t supported) const {
  if (!is_map()) {
    throw problem("a mapping with the key 'schema' is needed at the top of the file");
  }
  const YamlValue schema = at("schema");
  if (schema.number(0, 1'000'000) != supported) {
    throw schema.problem(fmt::format("this lumelift reads schema {}, and the file says {}", supported, schema.impl_->node.Scalar()));
  }
}

}  // namespace lumelift
