/// lumelift-probe: prints what the Metal device of this process answers, as one JSON object on standard output (or as a
/// table with --text), and judges it. Exit statuses: verdict.hpp.

#include "shim/device.hpp"
#include "shim/process.hpp"

namespace lumelift::shim {
namespace {

constexpr char kUsage[] = R"(usage: lumelift-probe [OPTION]...
Prints what the Metal device answers in this process, as JSON.

  --text                    a table for people instead of JSON
  --expect stock|unlocked   exit 0 only if the answers are of this kind
  --ceiling N               highest Apple family allowed, 1001 to 1009; above it is over-broad
                            (default LUME_METAL_APPLE_FAMILY_MAX where it is set, else 1009)
  --threadgroup-memory N    with --expect unlocked: at least so many bytes
  --functional              compile and run three kernels with known answers
  --receipt FILE            include the library's receipt (default LUMELIFT_RECEIPT where it is set)
  --self-test               prove that the assertions can fail; asks no device
  --version, --help

exit status: 0 stock, or as expected   1 no Metal device   2 wrong usage   3 not as expected
             4 over-broad or a hole in the families   5 functional failure   6 self-test failure
             10 unlocked   11 not a paravirtual device
)";

struct Options {
  bool text = false;
  bool functional = false;
  bool self_test = false;
  bool help = false;
  bool version = false;
  const char* receipt = nullptr;
  Expectation expectation;
};

void print(int fd, const char* data, size_t size) {
  while (size > 0) {
    const long count = write(fd, data, size);
    if (count <= 0) return;
    data += count;
    size -= static_cast<size_t>(count);
  }
}
void print(int fd, const char* text) {
  print(fd, text, strlen(text));
}

bool parse_ceiling(const char* text, int64_t& ceiling) {
  uint64_t value = 0;
  if (!parse_decimal(text, value) || value < uint64_t{kApple1} || value > uint64_t{kHighestCeiling}) return false;
  ceiling = static_cast<int64_t>(value);
  return true;
}

bool parse_kind(const char* text, Expectation::Kind& kind) {
  kind = strcmp(text, "stock") == 0 ? Expectation::Kind::stock : Expectation::Kind::unlocked;
  return kind == Expectation::Kind::stock || strcmp(text, "unlocked") == 0;
}

bool parse_flag(const char* text, Options& options) {
  struct Flag {
    const char* name;
    bool Options::*member;
  };
  constexpr Flag kFlags[] = {{"--text", &Options::text},
                             {"--functional", &Options::functional},
                             {"--self-test", &Options::self_test},
                             {"--help", &Options::help},
                             {"--version", &Options::version}};
  for (const Flag& flag : kFlags)
    if (strcmp(text, flag.name) == 0) return options.*flag.member = true;
  return false;
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    if (parse_flag(argv[i], options)) continue;
    const char* name = argv[i];
    if (++i >= argc) return false;
    bool good = false;
    if (strcmp(name, "--expect") == 0) good = parse_kind(argv[i], options.expectation.kind);
    if (strcmp(name, "--ceiling") == 0) good = parse_ceiling(argv[i], options.expectation.ceiling);
    if (strcmp(name, "--threadgroup-memory") == 0) good = parse_decimal(argv[i], options.expectation.threadgroup_memory);
    if (strcmp(name, "--receipt") == 0) good = (options.receipt = argv[i])[0] != '\0';
    if (!good) return false;
  }
  return true;
}

/// A receipt is written whole or not at all; anything that does not look like one object is left out.
void put_receipt(Text& json, const char* pattern, int pid) {
  char path[1024];
  char buffer[4096];
  bool per_process = false;
  json.key("receipt");
  const int fd = pattern != nullptr && expand_path(pattern, pid, path, sizeof path, per_process) ? open(path, 0) : -1;
  long size = fd >= 0 ? read(fd, buffer, sizeof buffer - 1) : 0;
  if (fd >= 0) close(fd);
  while (size > 0 && (buffer[size - 1] == '\n' || buffer[size - 1] == '\0')) --size;
  if (size < 2 || buffer[0] != '{' || buffer[size - 1] != '}') {
    json.put("null");
    return;
  }
  for (long i = 0; i < size; ++i) json.put(buffer[i]);
}

/// Cut at a length that no sensible value reaches, so that a report always fits.
void put_variable(Text& json, const char* name) {
  const char* value = getenv(name);
  if (value == nullptr) return;
  char cut[2048];
  Text copy(cut);
  copy.put(value);
  json.key(name).quoted(copy.c_str());
}

void put_variables(Text& json) {
  json.key("variables").put('{');
  for (const char* name : kVariables) put_variable(json, name);
  put_variable(json, "DYLD_INSERT_LIBRARIES");
  json.put('}');
}

const char* result_name(Check::Result result) {
  return result == Check::Result::pass ? "pass" : result == Check::Result::fail ? "fail" : "unavailable";
}

void put_checks(Text& json, const Check (&checks)[kCheckCount], bool ran) {
  json.key("functional");
  if (!ran) {
    json.put("null");
    return;
  }
  json.put('{');
  for (const Check& check : checks) {
    json.key(check.name).put('{').key("result").quoted(result_name(check.result));
    json.key("message").quoted(check.message[0] == '\0' ? nullptr : check.message).put('}');
  }
  json.put('}');
}

const char* kind_name(Expectation::Kind kind) {
  return kind == Expectation::Kind::nothing ? nullptr : kind == Expectation::Kind::stock ? "stock" : "unlocked";
}

/// Everything that one run found out.
struct Report {
  Process process;
  Devices devices;
  Answers answers;
  Judgement judgement;
  Check checks[kCheckCount];
  bool functional = false;
  Exit status = Exit::no_device;
};

void render_json(const Report& report, const Options& options, Text& json) {
  json.put('{').key("schema").put('1').key("probe").quoted(LUMELIFT_VERSION);
  report.process.describe(json);
  json.key("verdict").quoted(verdict_name(report.judgement.verdict)).key("problems").put('[');
  for (size_t i = 0; i < report.judgement.count; ++i) json.element().quoted(report.judgement.problems[i]);
  json.put(']').key("expect").quoted(kind_name(options.expectation.kind));
  json.key("exit_status").signed_number(static_cast<int>(report.status));
  json.key("metal").boolean(report.devices.metal_loaded());
  json.key("default_device").boolean(report.devices.has_default());
  json.key("listed_devices");
  if (report.devices.listed() < 0)
    json.put("null");
  else
    json.signed_number(report.devices.listed());
  json.key("device");
  if (report.devices.chosen() == nullptr) {
    json.put("null");
  } else {
    json.put('{');
    describe_device(report.devices.chosen(), report.answers, json);
    json.put('}');
  }
  json.key("other_devices").put('[');
  for (size_t i = 1; i < report.devices.count(); ++i) {
    json.element().put('{');
    describe_device(report.devices.at(i), ask(report.devices.at(i)), json);
    json.put('}');
  }
  json.put(']');
  put_checks(json, report.checks, report.functional);
  put_variables(json);
  put_receipt(json, options.receipt, report.process.pid);
  json.put("}\n");
}

void row(Text& out, const char* name) {
  size_t width = strlen(name);
  out.put("  ").put(name);
  for (; width < 20; ++width) out.put(' ');
}

void render_text(const Report& report, Text& out) {
  const Answers& answers = report.answers;
  out.put(verdict_name(report.judgement.verdict)).put("  (").put(slice_name()).put(", pid ");
  out.signed_number(report.process.pid).put(")\n");
  if (const id device = report.devices.chosen()) {
    const char* name = responds(device, "name") ? utf8(send<id>(device, "name")) : nullptr;
    row(out, "device"), out.put(name != nullptr ? name : "(no name)").put("  [");
    out.put(class_getName(object_getClass(device))).put("]\n");
    row(out, "default device"), out.put(report.devices.has_default() ? "yes\n" : "no, found in the list only\n");
    row(out, "Apple family"), out.signed_number(answers.highest_apple()).put('\n');
    row(out, "families");
    for (size_t i = 0; i < kFamilyCount; ++i)
      if ((answers.families >> i & 1) != 0) out.signed_number(kFamilies[i]).put(' ');
    out.put('\n');
    row(out, "Metal 3, Metal 4");
    out.put(answers.family(5001) ? "yes, " : "no, ").put(answers.family(5002) ? "yes\n" : "no\n");
    row(out, "threadgroup memory"), out.number(answers.threadgroup_memory).put(" bytes\n");
  }
  for (size_t i = 0; report.functional && i < kCheckCount; ++i) {
    row(out, report.checks[i].name), out.put(result_name(report.checks[i].result));
    if (report.checks[i].message[0] != '\0') out.put("  ").put(report.checks[i].message);
    out.put('\n');
  }
  for (size_t i = 0; i < report.judgement.count; ++i) row(out, "problem"), out.put(report.judgement.problems[i]).put('\n');
}

int prove_assertions() {
  if (const char* missed = self_test()) {
    print(2, "lumelift-probe: self-test failed: not noticed: ");
    print(2, missed);
    print(2, "\n");
    return static_cast<int>(Exit::self_test_failure);
  }
  print(1, "{\"schema\":1,\"self_test\":\"passed\"}\n");
  return 0;
}

int probe(Options& options) {
  if (options.expectation.ceiling == 0)
    if (const char* text = getenv(kCeilingVariable))
      if (!parse_ceiling(text, options.expectation.ceiling)) options.expectation.ceiling = 0;
  if (options.receipt == nullptr) options.receipt = getenv(kReceiptVariable);

  static Report report;
  static char buffer[1 << 18];
  report.process.read();
  report.devices.find();
  report.answers = ask(report.devices.chosen());
  report.judgement = judge(report.answers, options.expectation);
  report.status = exit_status(report.answers, options.expectation, report.judgement);
  if (options.functional && report.devices.chosen() != nullptr) {
    report.functional = true;
    run_checks(report.devices.chosen(), report.checks);
    for (const Check& check : report.checks)
      if (check.result != Check::Result::pass && report.status != Exit::over_broad) report.status = Exit::functional_failure;
  }
  Text out(buffer);
  if (options.text)
    render_text(report, out);
  else
    render_json(report, options, out);
  print(1, out.data(), out.size());
  return static_cast<int>(report.status);
}

}  // namespace
}  // namespace lumelift::shim

extern "C" int main(int argc, char** argv) {
  using namespace lumelift::shim;
  Options options;
  if (!parse(argc, argv, options)) {
    print(2, kUsage);
    return static_cast<int>(Exit::usage);
  }
  if (options.help || options.version) {
    print(1, options.help ? kUsage : "lumelift-probe " LUMELIFT_VERSION "\n");
    return 0;
  }
  return options.self_test ? prove_assertions() : probe(options);
}
