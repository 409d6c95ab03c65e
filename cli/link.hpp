#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cli/commands.hpp"
#include "host/journal.hpp"
#include "host/lume.hpp"
#include "remote/guest.hpp"
#include "remote/session.hpp"
#include "remote/transfer.hpp"

namespace lumelift {

/// A pin is the key's kind and fingerprint ("ssh-ed25519 SHA256:…"); older ones have no kind.
[[nodiscard]] std::string pin_text(const Session& session);
[[nodiscard]] std::string_view pinned_kind(std::string_view pin);
[[nodiscard]] std::string_view pinned_fingerprint(std::string_view pin);

/// True when connect() failed because nobody answered, which a restart may mend. False for what stays as it is: a login that is refused
/// or cannot be tried, another host key, a network that this Mac blocks.
[[nodiscard]] bool is_silence(const Error& error);

/// The one SSH connection to the guest of one VM, made when it is first needed and kept until the VM is stopped. Checks the
/// pinned host key before any password leaves, and pins the key at first contact. Not for two threads.
class GuestLink {
 public:
  enum class Pinning { record, check_only };
  GuestLink(const Lume& lume, Journal& journal, Console& console, std::string vm, LoginOptions login, Pinning pinning);
  ~GuestLink();
  GuestLink(const GuestLink&) = delete;
  GuestLink& operator=(const GuestLink&) = delete;

  /// The VM as lume has just listed it: the first try of the next connect() need not ask again.
  void expect(const Vm& seen) { expected_ = seen; }

  enum class Wait { up, booting };
  /// Connects unless connected: address from lume (asked again at each try), host key, login. `booting` forgives refusals,
  /// resets, late addresses and one refused login until the deadline. Throws Error: "vm-unknown", "vm-stopped" (busy),
  /// "guest-no-address", "guest-no-answer" (with what was last seen), "vm-address-shared" (busy), "guest-host-key-changed",
  /// "guest-host-key-kind" (the server has no key of the pinned kind), and what Session throws.
  void connect(const sys::Deadline& deadline, Wait wait);
  [[nodiscard]] bool connected() const { return session_ != nullptr; }
  /// Forgets the connection without blocking: the VM is going down.
  void drop();

  /// These connect within 20 s when not connected.
  [[nodiscard]] Guest& guest();
  [[nodiscard]] Transfer& transfer();
  [[nodiscard]] Session& session();

  /// One more connection to the guest that is connected now: same address, host key and login. May be called from any thread
  /// while no other member is. Throws what Session throws, and "guest-host-key-changed".
  [[nodiscard]] std::unique_ptr<Session> another() const;

  [[nodiscard]] const std::string& vm() const { return vm_; }
  [[nodiscard]] const LoginOptions& login() const { return login_; }
  [[nodiscard]] const std::string& address() const { return address_; }
  /// Connections made so far: one per boot of the guest.
  [[nodiscard]] int connections() const { return connections_; }

 private:
  [[nodiscard]] Credentials credentials() const;
  void open(const std::string& address, const sys::Deadline& deadline);
  /// Refuses an address that another running VM has as well, unless a pin of this VM's own tells the two apart.
  void require_own_place(const std::string& address) const;
  /// Connects as far as the host key, which is compared with the pin.
  [[nodiscard]] Session meet(const std::string& address, const sys::Deadline& deadline);
  void record_pin(const Session& session);
  const Lume& lume_;
  Journal& journal_;
  Console& console_;
  std::string vm_;
  LoginOptions login_;
  Pinning pinning_;
  std::optional<Vm> expected_;
  std::string address_, host_key_, host_key_kind_;
  int connections_ = 0;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Transfer> transfer_;
  std::unique_ptr<Guest> guest_;
};

}  // namespace lumelift
