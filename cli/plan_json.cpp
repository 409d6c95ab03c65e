#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/plan.hpp"
#include "host/sys/error.hpp"

namespace lumelift {
namespace {

using nlohmann::json;

json encode(const PrefValue& value) {
  struct Encoder {
    json operator()(const PrefAbsent&) const { return {{"type", "absent"}}; }
    json operator()(bool v) const { return {{"type", "boolean"}, {"value", v}}; }
    json operator()(std::int64_t v) const { return {{"type", "integer"}, {"value", v}}; }
    json operator()(const PrefReal& v) const { return {{"type", "real"}, {"value", v.text}}; }
    json operator()(const std::string& v) const { return {{"type", "string"}, {"value", v}}; }
    json operator()(const PrefContainer& v) const { return {{"type", v.type}, {"digest", v.digest}}; }
  };
  return std::visit(Encoder{}, value);
}

PrefValue decode_pref(const json& j) {
  const std::string type = j.at("type");
  if (type == "absent") {
    return PrefAbsent{};
  }
  if (type == "boolean") {
    return j.at("value").get<bool>();
  }
  if (type == "integer") {
    return j.at("value").get<std::int64_t>();
  }
  if (type == "real") {
    return PrefReal{j.at("value")};
  }
  if (type == "string") {
    return j.at("value").get<std::string>();
  }
  return PrefContainer{type, j.at("digest")};
}

json encode(const FileState& state) {
  return {{"sha256", state.sha256}, {"mode", state.mode}, {"size", state.size}};
}
FileState decode_file(const json& j) {
  return {j.at("sha256"), j.at("mode"), j.at("size")};
}

json encode(const StartOptions& start) {
  json shares = json::array();
  for (const auto& dir : start.shared_dirs) {
    shares.push_back({{"path", dir.host_path}, {"tag", dir.tag}, {"read_only", dir.read_only}});
  }
  return {{"storage", start.storage}, {"network", start.network ? json(*start.network) : json()}, {"shared_dirs", shares}};
}

StartOptions decode_start(const json& j) {
  StartOptions start;
  start.storage = j.at("storage");
  if (!j.at("network").is_null()) {
    start.network = j.at("network").get<std::string>();
  }
  for (const auto& dir : j.at("shared_dirs")) {
    start.shared_dirs.push_back({dir.at("path"), dir.at("tag"), dir.at("read_only")});
  }
  return start;
}

constexpr const char* agent_words[] = {"disabled", "unloaded", "loaded"};
AgentState decode_agent(const std::string& word) {
  for (int i = 0; i < 3; ++i) {
    if (word == agent_words[i]) {
      return static_cast<AgentState>(i);
    }
  }
  throw json::other_error::create(501, "unknown agent state " + word, nullptr);
}

Power decode_power(const std::string& word) {
  for (const Power power : {Power::running, Power::stopped}) {
    if (word == shown(power)) {
      return power;
    }
  }
  throw json::other_error::create(501, "unknown power state " + word, nullptr);
}

struct StepEncoder {
  json operator()(const SetPower& s) const {
    return {{"kind", "power"}, {"before", shown(s.before)}, {"after", shown(s.after)}, {"start", encode(s.start)}};
  }
  json operator()(const SetPreference& s) const {
    return {{"kind", "preference"}, {"domain", s.key.domain}, {"key", s.key.key}, {"before", encode(s.before)}, {"after", encode(s.after)}};
  }
  json operator()(const MakeFolder& s) const {
    return {{"kind", "folder"}, {"path", s.path}, {"mode", s.mode}, {"with_content", s.with_content}};
  }
  json operator()(const PutFile& s) const {
    return {{"kind", "file"},
            {"path", s.path},
            {"source", s.source.string()},
            {"before", s.before ? encode(*s.before) : json()},
            {"after", encode(s.after)}};
  }
  json operator()(const AddLine& s) const { return {{"kind", "line"}, {"path", s.path}, {"line", s.line}, {"new_file", s.new_file}}; }
  json operator()(const StageShare& s) const {
    json items = json::array();
    for (const auto& item : s.items) {
      items.push_back({{"source", item.source.string()}, {"name", item.name}});
    }
    return {{"kind", "share"}, {"folder", s.folder}, {"items", items}};
  }
  json operator()(const SetAgent& s) const {
    return {{"kind", "agent"},
            {"domain", s.domain},
            {"label", s.label},
            {"plist", s.plist},
            {"before", agent_words[static_cast<int>(s.before)]},
            {"after", agent_words[static_cast<int>(s.after)]}};
  }
};

Step decode_step(const json& j) {
  const std::string kind = j.at("kind");
  if (kind == "power") {
    return SetPower{decode_power(j.at("before")), decode_power(j.at("after")), decode_start(j.at("start"))};
  }
  if (kind == "preference") {
    return SetPreference{{j.at("domain"), j.at("key")}, decode_pref(j.at("before")), decode_pref(j.at("after"))};
  }
  if (kind == "folder") {
    return MakeFolder{j.at("path"), j.at("mode"), j.at("with_content")};
  }
  if (kind == "file") {
    PutFile step{j.at("path"), j.at("source").get<std::string>(), std::nullopt, decode_file(j.at("after")), {}};
    if (!j.at("before").is_null()) {
      step.before = decode_file(j.at("before"));
    }
    return step;
  }
  if (kind == "line") {
    return AddLine{j.at("path"), j.at("line"), j.at("new_file")};
  }
  if (kind == "share") {
    StageShare step{j.at("folder"), {}};
    for (const auto& item : j.at("items")) {
      step.items.push_back({item.at("source").get<std::string>(), item.at("name")});
    }
    return step;
  }
  if (kind == "agent") {
    return SetAgent{j.at("domain"), j.at("label"), j.at("plist"), decode_agent(j.at("before")), decode_agent(j.at("after"))};
  }
  throw json::other_error::create(501, "unknown kind " + kind, nullptr);
}

std::string dumped(const json& j) {
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

template <class Decode>
auto decoded(const std::string& body, Decode decode) {
  try {
    return decode(json::parse(body));
  } catch (const json::exception& e) {
    throw Error(ErrorKind::incomplete, "journal-unreadable",
                fmt::format("the journal holds a record that this lumelift cannot read: {}", e.what()))
        .note(body.substr(0, 200))
        .fix("use the lumelift that wrote it");
  }
}

}  // namespace

std::string to_json(const Step& step) {
  return dumped(std::visit(StepEncoder{}, step));
}
Step step_from_json(const std::string& body) {
  return decoded(body, decode_step);
}
std::string to_json(const PrefValue& value) {
  return dumped(encode(value));
}
PrefValue pref_from_json(const std::string& body) {
  return decoded(body, decode_pref);
}

}  // namespace lumelift
