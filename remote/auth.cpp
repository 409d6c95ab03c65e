#include <fmt/format.h>
#include <libssh2.h>

#include <algorithm>
#include <cstdlib>

#include "host/sys/error.hpp"
#include "remote/key_file.hpp"
#include "remote/session.hpp"
#include "remote/session_state.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;

constexpr auto doing = "log in to the guest";
constexpr std::size_t key_cap = 64u << 10;
// Servers count each key that is offered and allow six tries, some fewer.
constexpr int agent_keys = 2;
// Newer servers shut an address out that fails three times in a row.
constexpr int more_connections = 2;

/// The password goes to the first prompt that hides what is typed; everything else is answered with nothing.
void respond(const char*, int, const char*, int, int count, const LIBSSH2_USERAUTH_KBDINT_PROMPT* prompts,
             LIBSSH2_USERAUTH_KBDINT_RESPONSE* responses, void** abstract) {
  auto& state = *static_cast<Session::State*>(*abstract);
  for (int i = 0; i < count; ++i) {
    std::string_view text;
    if (prompts[i].echo == 0 && state.answer != nullptr) {
      text = state.answer->reveal();
      state.answer = nullptr;
    }
    // libssh2 frees the answer with the session's allocator, which is malloc's.
    auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (copy == nullptr) {
      continue;
    }
    *std::copy(text.begin(), text.end(), copy) = '\0';
    responses[i].text = copy;
    responses[i].length = static_cast<unsigned>(text.size());
  }
}

struct AgentCloser {
  void operator()(LIBSSH2_AGENT* agent) const {
    libssh2_agent_disconnect(agent);
    libssh2_agent_free(agent);
  }
};

Error unusable(const sys::fs::path& file, std::string_view reason) {
  return Error(ErrorKind::usage, "guest-key-unusable", fmt::format("cannot log in with {}: {}", file.string(), reason));
}

/// The server ended the connection in the middle of a login; what is left to try needs another one.
struct Ended {};

/// One login: what was tried, and with what result. Goes on over another connection after Ended.
class Login {
 public:
  Login(const Credentials& credentials, const sys::Deadline& deadline) : credentials_(credentials), deadline_(deadline) { plan(); }

  /// Returns how it succeeded; throws "guest-auth-failed", Ended.
  std::string run(Session::State& state) {
    state_ = &state;
    read_methods();
    if (libssh2_userauth_authenticated(state.ssh) == 1) {
      return "none";
    }
    while (!plan_.empty()) {
      // Each once, whatever becomes of it.
      const auto next = plan_.front();
      plan_.erase(plan_.begin());
      if (next.attempt()) {
        return how_;
      }
    }
    ask_again();
    throw refused("the guest accepted none of them");
  }

  /// After Ended: drops what would only use up tries, and tells whether anything is left.
  bool may_go_on() {
    const bool something_named = std::any_of(plan_.begin(), plan_.end(), [](const Step& step) { return step.named; });
    if (something_named) {
      std::erase_if(plan_, [](const Step& step) { return !step.named; });
    }
    return !plan_.empty();
  }

  [[nodiscard]] Error ended() const { return refused("the server ended the connection after so many tries"); }

 private:
  struct Step {
    bool named;  ///< the user asked for just this
    std::function<bool()> attempt;
  };

  void plan() {
    if (credentials_.use_agent) {
      plan_.push_back({false, [this] { return try_agent(); }});
    }
    if (credentials_.key_file) {
      plan_.push_back({true, [this] { return try_file(*credentials_.key_file, true); }});
    }
    for (const auto& file : credentials_.default_keys) {
      if (file != credentials_.key_file) {
        plan_.push_back({false, [this, &file] { return try_file(file, false); }});
      }
    }
    if (!credentials_.password) {
      return;
    }
    plan_.push_back({true, [this] { return try_password(); }});
    plan_.push_back({true, [this] { return try_interactive(); }});
  }

  [[nodiscard]] bool offers(std::string_view method) const {
    return ("," + methods_ + ",").find(fmt::format(",{},", method)) != std::string::npos;
  }

  void read_methods() {
    char* list = nullptr;
    const auto rc = state_->drive(doing, deadline_, [&]() -> long {
      const auto& user = credentials_.user;
      list = libssh2_userauth_list(state_->ssh, user.data(), static_cast<unsigned>(user.size()));
      if (list != nullptr || libssh2_userauth_authenticated(state_->ssh) == 1) {
        return 0;
      }
      return libssh2_session_last_errno(state_->ssh);
    });
    if (rc != 0) {
      state_->fail(doing, rc);
    }
    methods_ = list == nullptr ? "" : list;
  }

  /// A server that wants two methods in a row calls the first one refused too, as libssh2 tells it; only then it offers the second. Asking
  /// uses up a try, so it is done once, when nothing else is left; where it was one too many, the refusal before it is what counts.
  void ask_again() {
    if (tried_.empty() || std::exchange(asked_again_, true)) {
      return;
    }
    const auto former = methods_;
    try {
      read_methods();
    } catch (const Error&) {
      return;
    }
    if (methods_ != former) {
      tried_.back() += fmt::format(", or only the first of two methods: now the server asks for {}", methods_);
    }
  }

  /// True on success; false when the server says no; throws when the connection is gone.
  bool accept(const std::string& what, long rc) {
    if (rc == 0) {
      how_ = what;
      return true;
    }
    // After a disconnect message libssh2 may still call the answer merely missing.
    if (state_->lost(rc) || !state_->farewell.empty()) {
      state_->dead = true;
      tried_.push_back(what + ": the server ended the connection");
      throw Ended{};
    }
    tried_.push_back(fmt::format("{}: {}", what, rc == LIBSSH2_ERROR_AUTHENTICATION_FAILED ? "refused" : state_->library_message()));
    return false;
  }

  /// The text of a key file that is worth offering; nothing for a silent default key that is not.
  std::optional<std::string> read_key(const sys::fs::path& file, bool named) {
    std::error_code none;
    if (!named && !sys::fs::is_regular_file(file, none)) {
      return std::nullopt;
    }
    std::string text;
    try {
      text = sys::read_file(file, key_cap);
    } catch (const Error& error) {
      if (!named) {
        return std::nullopt;
      }
      throw unusable(file, error.message());
    }
    std::erase(text, '\r');
    const auto key = look_at_key(text);
    const auto reason = [&]() -> std::string_view {
      switch (key.kind) {
        case KeyText::Kind::public_key:
          return "it is the public half; name the private key";
        case KeyText::Kind::putty:
          return "it is a PuTTY key; convert it with: puttygen FILE -O private-openssh";
        case KeyText::Kind::unknown:
          return "it holds no private key in PEM or OpenSSH form";
        case KeyText::Kind::private_key:
          break;
      }
      if (key.security_key) {
        return "its secret is in a security key, which libssh2 reaches through an agent only";
      }
      return key.encrypted && !credentials_.passphrase ? "it is encrypted and no passphrase was given" : "";
    }();
    if (reason.empty()) {
      return text;
    }
    if (named) {
      throw unusable(file, reason);
    }
    return std::nullopt;
  }

  bool try_file(const sys::fs::path& file, bool named) {
    auto text = read_key(file, named);
    if (!text) {
      return false;
    }
    const auto what = fmt::format("publickey ({})", file.string());
    if (!offers("publickey")) {
      if (named) {
        tried_.push_back(what + ": not offered by the server");
      }
      return false;
    }
    const sys::Secret content(std::move(*text));
    const auto key = look_at_key(content.reveal());
    const auto rc = state_->drive(doing, deadline_, [&]() -> long {
      const auto& user = credentials_.user;
      return libssh2_userauth_publickey_frommemory(state_->ssh, user.data(), user.size(), nullptr, 0, content.reveal().data(),
                                                   content.reveal().size(),
                                                   credentials_.passphrase ? credentials_.passphrase->reveal().c_str() : nullptr);
    });
    const bool answered =
        rc == 0 || rc == LIBSSH2_ERROR_AUTHENTICATION_FAILED || rc == LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED || !state_->farewell.empty();
    const bool ended = rc == LIBSSH2_ERROR_SOCKET_RECV || rc == LIBSSH2_ERROR_SOCKET_DISCONNECT || state_->io_error != 0;
    const bool unreadable = !answered && !ended;
    if (unreadable) {
      if (!named) {
        return false;
      }
      throw unusable(file, key.encrypted ? std::string("wrong passphrase, or the file is damaged")
                                         : "unsupported or damaged: " + state_->library_message());
    }
    if (accept(what, rc)) {
      return true;
    }
    if (key.rsa && libssh2_version(0x010b00) == nullptr) {
      tried_.back() += fmt::format(
          " (libssh2 {} cannot make the RSA-SHA2 signatures that current servers ask for; use "
          "an ed25519 key)",
          libssh2_version(0));
    }
    return false;
  }

  /// The agent's keys, those first whose public half stands beside a key file of ours.
  std::vector<libssh2_agent_publickey*> identities(LIBSSH2_AGENT* agent) {
    std::string known;
    auto files = credentials_.default_keys;
    if (credentials_.key_file) {
      files.push_back(*credentials_.key_file);
    }
    for (const auto& file : files) {
      try {
        known += sys::read_file(file.string() + ".pub", key_cap);
      } catch (const Error&) {
        // Without it the key is one like the others.
      }
    }
    std::vector<libssh2_agent_publickey*> first, others;
    libssh2_agent_publickey* identity = nullptr;
    while (libssh2_agent_get_identity(agent, &identity, identity) == 0) {
      const auto blob = base64({reinterpret_cast<const char*>(identity->blob), identity->blob_len});
      (known.find(blob) != std::string::npos ? first : others).push_back(identity);
    }
    first.insert(first.end(), others.begin(), others.end());
    return first;
  }

  bool try_agent() {
    if (!offers("publickey")) {
      tried_.emplace_back("agent: public keys are not offered by the server");
      return false;
    }
    const std::unique_ptr<LIBSSH2_AGENT, AgentCloser> agent(libssh2_agent_init(state_->ssh));
    if (!agent || libssh2_agent_connect(agent.get()) != 0 || libssh2_agent_list_identities(agent.get()) != 0) {
      tried_.emplace_back("agent: none is running or it does not answer");
      return false;
    }
    int offered = 0;
    for (auto* identity : identities(agent.get())) {
      if (offered == agent_keys) {
        tried_.emplace_back("agent: more keys were not offered, since servers count each");
        break;
      }
      ++offered;
      const auto rc = state_->drive(doing, deadline_,
                                    [&]() -> long { return libssh2_agent_userauth(agent.get(), credentials_.user.c_str(), identity); });
      if (accept(fmt::format("agent ({})", identity->comment == nullptr ? "" : identity->comment), rc)) {
        return true;
      }
    }
    if (offered == 0) {
      tried_.emplace_back("agent: it holds no key");
    }
    return false;
  }

  bool try_password() {
    if (!offers("password")) {
      ask_again();
    }
    if (!offers("password")) {
      return false;
    }
    const auto& user = credentials_.user;
    const auto& word = credentials_.password->reveal();
    return accept("password", state_->drive(doing, deadline_, [&]() -> long {
      return libssh2_userauth_password_ex(state_->ssh, user.data(), static_cast<unsigned>(user.size()), word.data(),
                                          static_cast<unsigned>(word.size()), nullptr);
    }));
  }

  bool try_interactive() {
    if (!offers("keyboard-interactive")) {
      if (!offers("password")) {
        tried_.emplace_back("password: not offered by the server");
      }
      return false;
    }
    const auto& user = credentials_.user;
    state_->answer = &*credentials_.password;
    const auto rc = state_->drive(doing, deadline_, [&]() -> long {
      return libssh2_userauth_keyboard_interactive_ex(state_->ssh, user.data(), static_cast<unsigned>(user.size()), &respond);
    });
    state_->answer = nullptr;
    return accept("keyboard-interactive", rc);
  }

  [[nodiscard]] Error refused(std::string_view outcome) const {
    Error error(
        ErrorKind::failed, "guest-auth-failed",
        fmt::format("cannot log in to the guest as '{}': {}", credentials_.user, tried_.empty() ? "there is nothing to try" : outcome));
    for (const auto& one : tried_) {
      error.note("tried " + one);
    }
    error.note("the server offers: " + (methods_.empty() ? std::string("nothing") : methods_));
    if (!state_->farewell.empty()) {
      error.note("the server said: " + state_->farewell);
    }
    error.fix(credentials_.password ? "check user and password" : "give a password or a key file");
    return error;
  }

  Session::State* state_ = nullptr;
  const Credentials& credentials_;
  const sys::Deadline& deadline_;
  std::string methods_, how_;
  bool asked_again_ = false;
  std::vector<Step> plan_;
  std::vector<std::string> tried_;
};

}  // namespace

void Session::authenticate(const Credentials& credentials, const sys::Deadline& deadline, const std::function<Session()>& again) {
  Login login(credentials, deadline);
  for (int more = again ? more_connections : 0;; --more) {
    try {
      state_->login_method = login.run(*state_);
      break;
    } catch (const Ended&) {
      if (more == 0 || !login.may_go_on()) {
        throw login.ended();
      }
      *this = again();
    }
  }
  state_->authenticated = true;
  libssh2_keepalive_config(state_->ssh, 1, 4);
}

}  // namespace lumelift
