#include "cli/explanation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/json_text.hpp"
#include "host/sys/error.hpp"

namespace lumelift {
namespace {

using nlohmann::json;

constexpr std::int64_t metal3 = 5001;

Error unreadable(const std::string& why) {
  return Error(ErrorKind::usage, "trace-unreadable", "this is no trace of lumelift's library: " + why);
}

std::uint64_t answer_in(const json& object, const char* key, bool family) {
  const json& value = object.at(key);
  return family ? (value.get<bool>() ? 1 : 0) : value.get<std::uint64_t>();
}

Question question_in(const json& object) {
  Question out;
  const auto selector = object.at("selector").get<std::string>();
  if (selector == "supportsFamily:") {
    out.family = object.at("argument").get<std::int64_t>();
  } else if (selector == "maxThreadgroupMemoryLength") {
    out.about = Question::About::threadgroup_memory;
  } else if (selector == "recommendedMaxWorkingSetSize") {
    out.about = Question::About::working_set;
  } else {
    throw unreadable("it names the unknown question '" + selector + "'");
  }
  out.stock = answer_in(object, "stock", out.about == Question::About::family);
  out.count = object.at("count").get<std::uint64_t>();
  return out;
}

const Question* asked(const Trace& trace, std::int64_t family) {
  const auto found = std::find_if(trace.questions.begin(), trace.questions.end(),
                                  [&](const Question& q) { return q.about == Question::About::family && q.family == family; });
  return found == trace.questions.end() ? nullptr : &*found;
}

/// The outlook of a runtime whose fast way begins at certain families.
void judge_by_families(const Trace& trace, const Profile& profile, const Runtime& runtime, Explanation& out) {
  std::vector<std::string> refused;
  for (const int family : runtime.fast_from) {
    const Question* question = asked(trace, family);
    if (question == nullptr) {
      continue;
    }
    if (question->stock != 0) {
      out.outlooks = {Outlook::no_gain};
      out.reason = fmt::format("{}: {} is granted in the stock guest already", runtime.name, family_name(family));
      return;
    }
    if (with_profile(*question, profile) != 0) {
      out.outlooks = {runtime.gain == Gain::large ? Outlook::large_gain : Outlook::unknown};
      out.reason = fmt::format("{}: {}. {} is enough", runtime.name, runtime.meaning, family_name(family));
      return;
    }
    refused.push_back(family_name(family));
  }
  out.outlooks = {Outlook::unknown};
  out.reason = refused.empty() ? fmt::format("{}: this run asked for none of the families that matter to it", runtime.name)
                               : fmt::format("{}: it needs {}, which profile '{}' does not grant", runtime.name, fmt::join(refused, " or "),
                                             profile.name);
}

}  // namespace

std::string family_name(std::int64_t family) {
  if (family > 1000 && family < 2000) {
    return fmt::format("Apple {}", family - 1000);
  }
  if (family > 2000 && family < 3000) {
    return fmt::format("Mac {}", family - 2000);
  }
  if (family > 3000 && family < 4000) {
    return fmt::format("Common {}", family - 3000);
  }
  if (family > 4000 && family < 5000) {
    return fmt::format("Mac Catalyst {}", family - 4000);
  }
  // The first of this group is called Metal 3.
  if (family > 5000 && family < 6000) {
    return fmt::format("Metal {}", family - 5000 + 2);
  }
  return fmt::format("family {}", family);
}

Trace parse_trace(const std::string& text) {
  try {
    const json object = json::parse(json_text(text));
    if (!object.is_object()) {
      throw unreadable("it is no JSON object");
    }
    if (object.at("schema") != 1) {
      throw unreadable("its schema is not 1");
    }
    Trace trace;
    trace.complete = object.at("complete").get<bool>();
    trace.lost = object.at("lost").get<std::uint64_t>();
    if (const auto path = object.find("executable"); path != object.end() && path->is_string()) {
      trace.executable = path->get<std::string>();
    }
    for (const json& one : object.at("queries")) {
      trace.questions.push_back(question_in(one));
    }
    return trace;
  } catch (const json::exception& fault) {
    throw unreadable(fault.what());
  }
}

std::uint64_t with_profile(const Question& question, const Profile& profile) {
  switch (question.about) {
    case Question::About::family:
      return question.stock != 0 || (question.family > 1000 && question.family <= profile.apple_family_max) ? 1 : 0;
    case Question::About::threadgroup_memory:
      return std::max(question.stock, profile.threadgroup_memory);
    case Question::About::working_set:
      return std::max(question.stock, profile.working_set);
  }
  return question.stock;
}

std::string_view name_of(Outlook outlook) {
  static constexpr std::string_view names[] = {"large-gain", "no-gain", "breaks-with-metal3", "unknown"};
  return names[static_cast<std::size_t>(outlook)];
}

Explanation explain(const Trace& trace, const Profile& profile, const Runtime* runtime) {
  Explanation out;
  bool changes = false;
  for (const auto& question : trace.questions) {
    if (with_profile(question, profile) == question.stock) {
      continue;
    }
    changes = true;
    if (question.about == Question::About::family) {
      out.granted.push_back(question.family);
    }
  }
  std::sort(out.granted.begin(), out.granted.end());
  if (trace.questions.empty()) {
    out.outlooks = {Outlook::unknown};
    out.reason = "it asked its device nothing in this run";
  } else if (!changes && trace.lost == 0) {
    out.outlooks = {Outlook::no_gain};
    out.reason = fmt::format("none of the answers that it asked for would be another one under profile '{}'", profile.name);
  } else if (runtime == nullptr) {
    out.outlooks = {Outlook::unknown};
    out.reason = "what it is built on is not in the table of runtimes (--runtime NAME says it)";
  } else if (!runtime->fast_from.empty()) {
    judge_by_families(trace, profile, *runtime, out);
  } else {
    out.outlooks = {runtime->gain == Gain::none ? Outlook::no_gain : Outlook::unknown};
    out.reason = fmt::format("{}: {}", runtime->name, runtime->meaning);
  }
  if (runtime != nullptr && runtime->with_metal3 == WithMetal3::breaks && asked(trace, metal3) != nullptr) {
    out.outlooks.push_back(Outlook::breaks_with_metal3);
  }
  return out;
}

}  // namespace lumelift
