#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace lumelift {

/// The class of a failure; it alone decides the exit status of the command.
enum class ErrorKind {
  failed,      ///< 1: something went wrong while acting; what was done has been undone
  usage,       ///< 2: wrong usage, profile or file; nothing was touched
  incomplete,  ///< 3: something could not be undone, or was found changed by somebody else and left alone
  busy,        ///< 4: another lumelift holds the lock, or the VM is not in a state to act on
  unproven,    ///< 5: the guest works, but the proof of the unlock is missing
  blocked,     ///< 6: a rule of this Mac keeps us from the guest, which may be well; what was done has been undone
};

/// The exit status that stands for `kind`.
[[nodiscard]] int exit_status(ErrorKind kind) noexcept;

/// A broken promise. Owns its texts. `id` is a stable, documented, kebab-case name ("guest-host-key-changed"); `message`
/// says what was tried, on what, and what came back; `details` are further facts, one a line; `fix` is the next step
/// for the reader. Foreign text in any of them is untrusted: Console cleans it before a terminal sees it. Never holds a
/// secret.
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string id, std::string message) : kind_(kind), id_(std::move(id)), message_(std::move(message)) {}

  /// Adds a fact below the message (innermost first, as the exception travels up). Returns *this for `throw E.note()`.
  Error& note(std::string detail) & {
    details_.push_back(std::move(detail));
    return *this;
  }
  Error&& note(std::string detail) && {
    details_.push_back(std::move(detail));
    return std::move(*this);
  }
  Error& fix(std::string next_step) & {
    fix_ = std::move(next_step);
    return *this;
  }
  Error&& fix(std::string next_step) && {
    fix_ = std::move(next_step);
    return std::move(*this);
  }
  /// Re-classifies on the way up: a failure whose undo was incomplete becomes ErrorKind::incomplete.
  void reclassify(ErrorKind kind) noexcept { kind_ = kind; }

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  [[nodiscard]] const std::string& id() const noexcept { return id_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }
  [[nodiscard]] const std::vector<std::string>& details() const noexcept { return details_; }
  [[nodiscard]] const std::string& fix() const noexcept { return fix_; }
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

 private:
  ErrorKind kind_;
  std::string id_;
  std::string message_;
  std::vector<std::string> details_;
  std::string fix_;
};

}  // namespace lumelift
