#include "cli/compat.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "host/sys/error.hpp"
#include "host/sys/file.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::size_t book_cap = 16u << 20;

struct Field {
  const char* name;
  std::string CompatKey::*member;
};
constexpr Field fields[] = {{"chip", &CompatKey::chip},
                            {"host_build", &CompatKey::host_build},
                            {"guest_os", &CompatKey::guest_os},
                            {"guest_build", &CompatKey::guest_build},
                            {"library_sha256", &CompatKey::library_sha256},
                            {"profile", &CompatKey::profile},
                            {"workload", &CompatKey::workload}};

fs::path book_path(const fs::path& state_dir) {
  return state_dir / "compat.json";
}

Error unreadable(const fs::path& path, std::string_view why) {
  return Error(ErrorKind::failed, "compat-unreadable", fmt::format("'{}' {}", path.string(), why))
      .fix("move it away; what it recorded can be measured again");
}

CompatRecord record_of(const nlohmann::json& object) {
  CompatRecord record;
  for (const auto& field : fields) record.key.*field.member = object.at(field.name).get<std::string>();
  record.outcome = outcome_of(object.at("outcome").get<std::string>()).value();
  record.proof = object.at("proof").get<std::string>();
  record.recorded_at = object.at("recorded_at").get<std::int64_t>();
  return record;
}

std::string text_of(const std::vector<CompatRecord>& records) {
  ordered_json list = ordered_json::array();
  for (const auto& record : records) {
    ordered_json object;
    for (const auto& field : fields) object[field.name] = record.key.*field.member;
    object["outcome"] = outcome_text(record.outcome);
    object["proof"] = record.proof;
    object["recorded_at"] = record.recorded_at;
    list.push_back(std::move(object));
  }
  return ordered_json{{"schema_version", 1}, {"records", list}}.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

sys::FileLock locked(const fs::path& state_dir) {
  sys::ensure_private_folder(state_dir);
  return {state_dir / "compat.lock", "writing compat.json", sys::Deadline::in(std::chrono::seconds(5))};
}

Outcome outcome_of(const WorkloadReport& workload) {
  bool compared = false;
  for (const auto& test : workload.tests) {
    const auto* stock = test.against(Role::stock);
    if (stock && stock->verdict == Verdict::slower) return Outcome::failing;
    compared = compared || (stock && stock->verdict != Verdict::inconclusive);
  }
  return compared ? Outcome::verified : Outcome::reported_only;
}

/// Both known and different.
bool differ(const std::string& a, const std::string& b) {
  return !a.empty() && !b.empty() && a != b;
}

}  // namespace

std::string_view outcome_text(Outcome outcome) {
  switch (outcome) {
    case Outcome::verified:
      return "verified";
    case Outcome::reported_only:
      return "reported only";
    case Outcome::failing:
      break;
  }
  return "failing";
}

std::optional<Outcome> outcome_of(std::string_view text) {
  for (const auto outcome : {Outcome::verified, Outcome::reported_only, Outcome::failing}) {
    if (outcome_text(outcome) == text) return outcome;
  }
  return std::nullopt;
}

std::string_view standing_text(Standing standing) {
  switch (standing) {
    case Standing::published:
      return "published evidence (M1 Ultra, Tahoe 26.5)";
    case Standing::proven_here:
      return "proven on this host";
    case Standing::unlocked_here:
      return "unlocked on this host before, not measured";
    case Standing::failing:
      return "recorded on this host as failing";
    case Standing::stale:
      return "proven on this host before a build or the library changed: measure again";
    case Standing::untested:
      break;
  }
  return "untested";
}

CompatBook CompatBook::load(const fs::path& state_dir) {
  CompatBook book;
  const auto path = book_path(state_dir);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return book;
  const auto object = nlohmann::json::parse(sys::read_file(path, book_cap), nullptr, false);
  if (!object.is_object() || !object.contains("records")) throw unreadable(path, "is damaged");
  try {
    if (object.at("schema_version").get<int>() > 1) throw unreadable(path, "was written by a newer lumelift");
    for (const auto& entry : object.at("records")) book.put(record_of(entry));
  } catch (const nlohmann::json::exception&) {
    throw unreadable(path, "is damaged");
  } catch (const std::bad_optional_access&) {
    throw unreadable(path, "holds an unknown outcome");
  }
  return book;
}

void CompatBook::put(const CompatRecord& record) {
  const auto former = std::find_if(records_.begin(), records_.end(), [&](const CompatRecord& old) { return old.key == record.key; });
  if (former != records_.end()) {
    // Samples too far apart to tell show nothing against what better ones showed.
    if (former->outcome == Outcome::verified && record.outcome == Outcome::reported_only) {
      return;
    }
    records_.erase(former);
  }
  records_.push_back(record);
}

void CompatBook::add(const fs::path& state_dir, const CompatRecord& record) {
  const auto lock = locked(state_dir);
  auto book = load(state_dir);
  book.put(record);
  sys::write_file(book_path(state_dir), text_of(book.records_), 0600);
}

std::size_t CompatBook::forget(const fs::path& state_dir, std::string_view workload) {
  const auto lock = locked(state_dir);
  auto book = load(state_dir);
  const auto count =
      std::erase_if(book.records_, [&](const CompatRecord& record) { return workload.empty() || record.key.workload == workload; });
  if (count > 0) sys::write_file(book_path(state_dir), text_of(book.records_), 0600);
  return count;
}

bool CompatBook::stale(const CompatRecord& record, const CompatKey& now) {
  return differ(record.key.host_build, now.host_build) || differ(record.key.guest_build, now.guest_build) ||
         differ(record.key.guest_os, now.guest_os) || differ(record.key.library_sha256, now.library_sha256);
}

Standing CompatBook::standing(const CompatKey& key) const {
  bool outdated = false, unlocked = false;
  for (auto record = records_.rbegin(); record != records_.rend(); ++record) {
    const bool speaks = record->key.workload == key.workload || (key.workload.empty() && record->outcome != Outcome::failing);
    if (record->key.chip != key.chip || record->key.profile != key.profile || !speaks) continue;
    if (stale(*record, key)) {
      outdated = true;
      continue;
    }
    if (record->outcome == Outcome::failing) return Standing::failing;
    if (record->outcome == Outcome::verified) return Standing::proven_here;
    unlocked = true;
  }
  if (published(key)) return Standing::published;
  if (unlocked) return Standing::unlocked_here;
  return outdated ? Standing::stale : Standing::untested;
}

std::vector<CompatRecord> compat_records(const Report& report, const CompatKey& base, const std::string& proof, std::int64_t now) {
  std::vector<CompatRecord> records;
  for (const auto& workload : report.workloads) {
    auto key = base;
    key.workload = workload.name;
    records.push_back({std::move(key), outcome_of(workload), proof, now});
  }
  return records;
}

bool published(const CompatKey& key) {
  return key.chip == "Apple M1 Ultra" && (key.guest_os == "26.5" || key.guest_os.starts_with("26.5.")) && key.profile == "tested";
}

}  // namespace lumelift
