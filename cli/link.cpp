#include "cli/link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "cli/vm_name.hpp"

namespace lumelift {
namespace {

using sys::Milliseconds;
constexpr Milliseconds when_needed{20'000};
constexpr Milliseconds first_pause{40}, longest_pause{1'000};
// A lease of an earlier boot can lead to another VM for a moment; longer than this it is a changed key.
constexpr Milliseconds stranger_tolerated{10'000};

/// A command as --verbose shows it: blanks folded, cut.
std::string on_one_line(std::string_view command) {
  std::string out;
  for (const char c : command.substr(0, 400)) {
    const bool blank = c == ' ' || c == '\n' || c == '\t';
    if (!blank || (!out.empty() && out.back() != ' ')) {
      out += blank ? ' ' : c;
    }
  }
  return cleaned(out, 160);
}

bool passes_by_itself(const std::string& id) {
  constexpr std::array ids = {"guest-refused", "guest-silent", "guest-handshake", "guest-lost", "guest-timeout", "guest-unreachable"};
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// What the waiting has seen, for the message at its end.
struct Seen {
  sys::Stopwatch since;
  int refused_logins = 0, blocked = 0, missing = 0;
  std::optional<sys::Stopwatch> stranger;
  std::optional<Error> last;
  bool had_address = false;
};

/// lume's list as far as it can be had; one broken VM can spoil it, and it only serves to say more.
std::vector<Vm> all_vms(const Lume& lume) {
  try {
    return lume.list();
  } catch (const Error&) {
    return {};
  }
}

[[noreturn]] void no_address(const Lume& lume, const std::string& vm, double seconds) {
  Error error(ErrorKind::failed, "guest-no-address",
              fmt::format("'{}' runs, but lume named no address for it within {:.0f} s", vm, seconds));
  const auto others = others_without_address(all_vms(lume), vm);
  if (others.empty()) {
    error.note("the guest may still be booting; a host firewall that blocks bootpd, or a full DHCP lease table, looks the same");
    throw error.fix("look at the VM's screen; a VM that has just been started can be given longer with --timeout");
  }
  error.note(fmt::format(
      "{} {} without an address as well: this Mac's DHCP lease table is probably full (some 250 addresses, each kept for a day, also "
      "those of VMs that are gone), or its firewall blocks bootpd",
      fmt::join(others, ", "), others.size() == 1 ? "runs" : "run"));
  throw error.fix("let leases end or restart the Mac; lumelift never edits /var/db/dhcpd_leases");
}

[[noreturn]] void give_up(const Lume& lume, const std::string& vm, const Seen& seen) {
  const double seconds = static_cast<double>(seen.since.elapsed().count()) / 1000;
  if (!seen.had_address) {
    no_address(lume, vm, seconds);
  }
  Error error(ErrorKind::failed, "guest-no-answer", fmt::format("the guest of '{}' did not answer over SSH within {:.0f} s", vm, seconds));
  if (seen.last) {
    error.note(fmt::format("last seen: {} ({})", seen.last->message(), seen.last->id()));
    for (const auto& detail : seen.last->details()) {
      error.note(detail);
    }
  }
  throw error.fix(
      "check that Remote Login is on in the guest and that it does not wait at a disk-encryption prompt; a VM that is started can be given "
      "longer with --timeout");
}

/// Decides whether one more try makes sense after `error`; rethrows where it does not.
void judge(const Error& error, Seen& seen, bool booting) {
  // A try that only the end of the waiting cut off tells less than the one before it.
  if (!seen.last || error.id() != "guest-timeout") {
    seen.last = error;
  }
  if (passes_by_itself(error.id())) {
    return;
  }
  if (!booting) {
    throw error;
  }
  // Accounts can come up a moment after sshd.
  if (error.id() == "guest-auth-failed" && seen.refused_logins++ == 0) {
    return;
  }
  if (error.id() == "guest-blocked" && seen.blocked++ < 3) {
    return;
  }
  if (error.id() == "guest-host-key-changed" || error.id() == "vm-address-shared") {
    if (!seen.stranger) {
      seen.stranger.emplace();
    }
    if (seen.stranger->elapsed() < stranger_tolerated) {
      return;
    }
  }
  throw error;
}

}  // namespace

bool is_silence(const Error& error) {
  return passes_by_itself(error.id()) || error.id() == "guest-no-answer" || error.id() == "guest-no-address";
}

std::string pin_text(const Session& session) {
  return session.host_key_kind() + " " + session.host_key();
}

std::string_view pinned_kind(std::string_view pin) {
  const auto blank = pin.find(' ');
  return blank == std::string_view::npos ? std::string_view{} : pin.substr(0, blank);
}

std::string_view pinned_fingerprint(std::string_view pin) {
  const auto kind = pinned_kind(pin);
  return kind.empty() ? pin : pin.substr(kind.size() + 1);
}

GuestLink::GuestLink(const Lume& lume, Journal& journal, Console& console, std::string vm, LoginOptions login, Pinning pinning)
    : lume_(lume), journal_(journal), console_(console), vm_(std::move(vm)), login_(std::move(login)), pinning_(pinning) {
  namespace fs = std::filesystem;
  if (!login_.key_file) {
    return;
  }
  std::error_code fault;
  const auto mode = fs::status(*login_.key_file, fault).permissions() & (fs::perms::group_all | fs::perms::others_all);
  if (!fault && mode != fs::perms::none) {
    console_.warn(
        fmt::format("{} can be used by others; ssh would refuse it: chmod 600 {}", login_.key_file->string(), login_.key_file->string()));
  }
}

GuestLink::~GuestLink() = default;

void GuestLink::drop() {
  guest_.reset();
  transfer_.reset();
  session_.reset();
  expected_.reset();
}

Credentials GuestLink::credentials() const {
  Credentials wanted;
  wanted.user = login_.user;
  wanted.password = login_.password;
  wanted.key_file = login_.key_file;
  wanted.passphrase = login_.passphrase;
  wanted.use_agent = login_.use_agent;
  wanted.default_keys = login_.default_keys;
  return wanted;
}

std::unique_ptr<Session> GuestLink::another() const {
  const auto deadline = sys::Deadline::in(when_needed);
  const auto dial = [&] {
    Session session(login_.via_nc ? connect_nc(address_, login_.port) : Route(connect_tcp(address_, login_.port, deadline)), deadline,
                    host_key_kind_);
    if (session.host_key() != host_key_) {
      throw Error(ErrorKind::failed, "guest-host-key-changed", fmt::format("a second connection to '{}' met another SSH host key", vm_));
    }
    return session;
  };
  auto session = std::make_unique<Session>(dial());
  session->authenticate(credentials(), deadline, dial);
  return session;
}

void GuestLink::require_own_place(const std::string& address) const {
  const auto pins = journal_.pins();
  const auto own = std::find_if(pins.begin(), pins.end(), [&](const Pin& p) { return p.vm == vm_; });
  const auto twin = [&](const Pin& p) { return p.vm != vm_ && pinned_fingerprint(p.fingerprint) == pinned_fingerprint(own->fingerprint); };
  if (own != pins.end() && std::none_of(pins.begin(), pins.end(), twin)) {
    return;
  }
  require_own_address(all_vms(lume_), vm_, address);
}

Session GuestLink::meet(const std::string& address, const sys::Deadline& deadline) {
  const auto pin = journal_.pin(vm_);
  const std::string_view kind = pin ? pinned_kind(pin->fingerprint) : std::string_view{};
  Session session(login_.via_nc ? connect_nc(address, login_.port) : Route(connect_tcp(address, login_.port, deadline)), deadline, kind);
  session.observe([this](std::string_view command, const ExecResult& result, Milliseconds spent) {
    console_.detail(fmt::format("guest {:>5} ms  {}  {}", spent.count(), result.ending(), on_one_line(command)));
  });
  if (!pin || pinned_fingerprint(pin->fingerprint) == session.host_key()) {
    require_own_place(address);
    return session;
  }
  const auto pinned_on = sys::iso_utc(pin->since).substr(0, 10);
  if (!kind.empty() && kind != session.host_key_kind()) {
    throw Error(ErrorKind::failed, "guest-host-key-kind",
                fmt::format("the SSH server of '{}' no longer has a host key of the pinned kind, {}", vm_, kind))
        .note(fmt::format("expected  {} (pinned {})", pin->fingerprint, pinned_on))
        .note(fmt::format("it has    {}", pin_text(session)))
        .note("Its sshd_config may have been changed, or another VM has this address. No password was sent.")
        .fix(fmt::format("if the new key is right: lumelift trust {}", vm_));
  }
  throw Error(ErrorKind::failed, "guest-host-key-changed", fmt::format("the SSH host key of '{}' is not the one seen before", vm_))
      .note(fmt::format("expected  {} (pinned {})", pinned_fingerprint(pin->fingerprint), pinned_on))
      .note(fmt::format("got       {}", session.host_key()))
      .note("The VM may have been recreated or cloned, or its address now belongs to another VM. No password was sent.")
      .fix(fmt::format("if the new key is right: lumelift trust {}", vm_));
}

void GuestLink::record_pin(const Session& session) {
  if (pinning_ != Pinning::record || journal_.pin(vm_)) {
    return;
  }
  const auto known = journal_.pins();
  const auto twin =
      std::find_if(known.begin(), known.end(), [&](const Pin& p) { return pinned_fingerprint(p.fingerprint) == session.host_key(); });
  if (twin != known.end()) {
    console_.say(fmt::format("note: '{}' and '{}' have one SSH host key: one is a clone of the other", vm_, twin->vm));
  }
  journal_.set_pin(vm_, pin_text(session));
  if (session.login_method() == "password" || session.login_method() == "keyboard-interactive") {
    console_.say(fmt::format("next time without a password: lumelift unlock {} --install-key  (rollback removes the key)", vm_));
  }
}

void GuestLink::open(const std::string& address, const sys::Deadline& deadline) {
  auto session = std::make_unique<Session>(meet(address, deadline));
  session->authenticate(credentials(), deadline, [&] { return meet(address, deadline); });
  record_pin(*session);
  console_.detail(fmt::format("connected to {} port {} as {} by {}", address, login_.port, login_.user, session->login_method()));
  session_ = std::move(session);
  transfer_ = std::make_unique<Transfer>(*session_);
  guest_ = std::make_unique<Guest>(*session_);
  address_ = address;
  host_key_ = session_->host_key();
  host_key_kind_ = session_->host_key_kind();
  ++connections_;
}

void GuestLink::connect(const sys::Deadline& deadline, Wait wait) {
  if (session_) {
    return;
  }
  const bool booting = wait == Wait::booting;
  Seen seen;
  for (Milliseconds pause = first_pause;; pause = std::min(pause * 3 / 2, longest_pause)) {
    sys::check_interrupt();
    if (deadline.expired()) {
      give_up(lume_, vm_, seen);
    }
    auto vm = std::exchange(expected_, std::nullopt);
    if (!vm) {
      vm = lume_.find(vm_);
    }
    // Right after a stop or start lume can miss a VM for a moment.
    if (!vm && (!booting || ++seen.missing > 20)) {
      throw unknown_vm(lume_, vm_);
    }
    if (vm && vm->power() != Power::running && !booting) {
      throw Error(ErrorKind::busy, "vm-stopped", fmt::format("'{}' is {}", vm_, vm->status))
          .fix("start it, or let lumelift unlock start it");
    }
    if (vm && vm->address) {
      seen.had_address = true;
      try {
        open(*vm->address, deadline.at_most(Milliseconds{15'000}));
        return;
      } catch (const Error& error) {
        judge(error, seen, booting);
      }
    }
    sys::pause(pause, deadline);
  }
}

Guest& GuestLink::guest() {
  connect(sys::Deadline::in(when_needed), Wait::up);
  return *guest_;
}
Transfer& GuestLink::transfer() {
  connect(sys::Deadline::in(when_needed), Wait::up);
  return *transfer_;
}
Session& GuestLink::session() {
  connect(sys::Deadline::in(when_needed), Wait::up);
  return *session_;
}

}  // namespace lumelift
