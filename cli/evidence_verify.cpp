#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/console.hpp"
#include "cli/evidence.hpp"
#include "cli/evidence_bundle.hpp"
#include "cli/sanitise.hpp"
#include "host/sys/error.hpp"
#include "host/sys/file.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;

constexpr const char* sums_name = "SHA256SUMS";
constexpr const char* parts[] = {"metadata.json", "results.csv", "raw"};

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

/// Path to checksum; malformed lines become problems.
std::map<std::string, std::string> read_sums(std::string_view text, std::vector<std::string>& problems) {
  std::map<std::string, std::string> sums;
  const auto lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto& line = lines[i];
    const auto digits = line.find_first_not_of("0123456789abcdef");
    if (digits != 64 || line.size() < 67 || line.substr(64, 2) != "  ") {
      problems.push_back(fmt::format("SHA256SUMS: line {} is no checksum line", i + 1));
      continue;
    }
    const auto path = line.substr(66);
    if (!sums.emplace(path, line.substr(0, 64)).second) {
      problems.push_back(fmt::format("SHA256SUMS: {} is listed twice", path));
    }
  }
  if (!text.ends_with('\n')) problems.emplace_back("SHA256SUMS: its last line has no end");
  return sums;
}

void check_sums(const fs::path& bundle, std::vector<std::string>& problems) {
  auto sums = read_sums(sys::read_file(bundle / "SHA256SUMS", evidence_file_cap), problems);
  const auto listing = list_folder(bundle);
  for (const auto& other : listing.others) problems.push_back(fmt::format("{}: is no regular file", other));
  for (const auto& file : listing.files) {
    const auto name = file.generic_string();
    if (name == "SHA256SUMS") continue;
    const auto listed = sums.find(name);
    if (listed == sums.end()) {
      problems.push_back(fmt::format("{}: is not in SHA256SUMS", name));
      continue;
    }
    const auto actual = sys::sha256_file(bundle / file);
    if (actual != listed->second) {
      problems.push_back(fmt::format("{}: its checksum is {}, not {}", name, actual, listed->second));
    }
    sums.erase(listed);
  }
  for (const auto& [name, sum] : sums) problems.push_back(fmt::format("{}: is in SHA256SUMS, but not there", name));
}

/// Names the first line that differs; the caller knows that the texts do.
std::string first_difference(std::string_view name, std::string_view there, std::string_view computed) {
  const auto have = lines_of(there), want = lines_of(computed);
  for (std::size_t i = 0; i < std::max(have.size(), want.size()); ++i) {
    const auto left = i < have.size() ? have[i] : "(nothing)", right = i < want.size() ? want[i] : "(nothing)";
    if (left != right) {
      return fmt::format("{}: line {} says {}, but raw/ gives {}", name, i + 1, cleaned(left, 200), cleaned(right, 200));
    }
  }
  return fmt::format("{}: differs from what raw/ gives", name);
}

Limits limits_of(const std::string& metadata) {
  const auto object = nlohmann::json::parse(metadata, nullptr, false);
  Limits limits;
  if (object.is_discarded() || !object.is_object() || object.value("kind", "") != "lumelift-evidence") {
    throw Error(ErrorKind::usage, "evidence-metadata", "metadata.json: is not the metadata of a bundle");
  }
  try {
    const auto& stored = object.at("report").at("limits");
    limits = {stored.at("flag").get<double>(), stored.at("reject").get<double>(), stored.at("material").get<double>()};
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorKind::usage, "evidence-metadata", "metadata.json: does not say the limits of its report");
  }
  return limits;
}

void check_figures(const fs::path& bundle, Verification& verification) {
  const auto metadata = sys::read_file(bundle / "metadata.json", evidence_file_cap);
  const auto results = sys::read_file(bundle / "results.csv", evidence_file_cap);
  const auto derived = derive_evidence(bundle / "raw", limits_of(metadata));
  if (results != derived.results_csv) {
    verification.problems.push_back(first_difference("results.csv", results, derived.results_csv));
  }
  if (metadata != derived.metadata_json) {
    verification.problems.push_back(first_difference("metadata.json", metadata, derived.metadata_json));
  }
  for (const auto& finding : derived.bundle.report.findings) {
    // A refusal that was packed is part of the published report; one that appears now shows in metadata.json above. An edited
    // file is neither: no honest run contains one.
    if (finding.level == Level::refused && finding.text.find("was edited") != std::string::npos) {
      verification.problems.push_back(fmt::format("raw/{}: {}", finding.subject, finding.text));
    }
  }
  verification.bundle = derived.bundle;
}

void check_names(const fs::path& bundle, std::vector<std::string>& problems) {
  for (const auto& file : list_folder(bundle / "raw").files) {
    const auto text = sys::read_file(bundle / "raw" / file, evidence_file_cap);
    const auto clean = Sanitiser().clean(text);
    if (clean != text) problems.push_back(first_difference("raw/" + file.generic_string() + " still names somebody", text, clean));
  }
}

std::string shown(const std::string& value) {
  return value.empty() ? "not recorded" : markdown_text(value);
}

}  // namespace

Verification verify_evidence(const fs::path& bundle) {
  const auto there = [&](const char* part) {
    std::error_code error;
    return fs::exists(bundle / part, error);
  };
  std::vector<std::string> missing;
  for (const auto* part : parts) {
    if (!there(part)) missing.emplace_back(part);
  }
  if (!there(sums_name) || missing.size() == std::size(parts)) {
    throw Error(ErrorKind::usage, "evidence-no-bundle",
                fmt::format("'{}' is no evidence bundle: it has no {}", bundle.string(), there(sums_name) ? missing.front() : sums_name))
        .fix("make one with: lumelift evidence pack FOLDER BUNDLE");
  }
  Verification verification;
  check_sums(bundle, verification.problems);
  if (!missing.empty()) {
    for (const auto& part : missing) {
      const auto said = fmt::format("{}: is in SHA256SUMS, but not there", part);
      auto& problems = verification.problems;
      if (std::find(problems.begin(), problems.end(), said) == problems.end()) problems.push_back(part + ": is not there");
    }
    return verification;
  }
  try {
    check_figures(bundle, verification);
    check_names(bundle, verification.problems);
  } catch (const Error& error) {
    verification.problems.push_back(error.message());
  }
  return verification;
}

std::string compatibility_report(const Bundle& bundle, const std::string& checksum) {
  const auto& facts = bundle.environment;
  std::string text = fmt::format("## Metal in a macOS guest: {}, guest {}\n\n| | |\n| --- | --- |\n", shown(facts.get("chip")),
                                 shown(facts.get("guest_os")));
  static const std::map<std::string, const char*> titles{{"chip", "Chip"},
                                                         {"gpu_cores", "GPU cores"},
                                                         {"memory_bytes", "Memory of the host, bytes"},
                                                         {"host_os", "macOS of the host"},
                                                         {"host_build", "Build of the host"},
                                                         {"guest_os", "macOS of the guest"},
                                                         {"guest_build", "Build of the guest"},
                                                         {"lume", "lume"},
                                                         {"guest_image_digest", "Guest image"},
                                                         {"library_sha256", "Injected library, SHA-256"},
                                                         {"profile", "Profile"},
                                                         {"host_preference", "Host preference"}};
  for (const auto& key : environment_keys()) text += fmt::format("| {} | {} |\n", titles.at(key), shown(facts.get(key)));
  text += "\n" + render_markdown(bundle.report);
  text += fmt::format(
      "\nThe GPU of the guest is a paravirtual one. The bundle holds {} raw files; SHA-256 of its `SHA256SUMS`: `{}`. "
      "`lumelift evidence verify` computes every number again.\n",
      bundle.files, checksum);
  return text;
}

}  // namespace lumelift
