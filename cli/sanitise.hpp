#pragma once

#include <set>
#include <string>
#include <string_view>

namespace lumelift {

/// Takes out of text what names a person or a machine, and leaves every figure: home folders become "~", per-user temporary
/// folders "<tmp>", user and host names "<user>" and "<host>", mail and login addresses, IP and MAC addresses "<address>",
/// UUIDs "<uuid>". Loopback addresses, version numbers and times stay. What was replaced is not matched again, so cleaning is
/// idempotent. Works on the text as it is, JSON or not; nothing outside a string of a JSON document can match.
class Sanitiser {
 public:
  /// Collects the user names of home folders and the labels of local host names, so that they are found standing alone too.
  /// Names that are words of this trade ("lume", "admin", "runner") are not collected: they say nothing about anybody.
  void learn(std::string_view text);
  /// A name that is known beforehand: the local user, the local host. Ignored if it is such a word or shorter than three letters.
  void learn_user(std::string_view name);
  void learn_host(std::string_view name);
  /// A home folder with another name than /Users/NAME or /home/NAME. Ignored if it is no absolute path with a name in it.
  void learn_home(std::string_view path);

  [[nodiscard]] std::string clean(std::string_view text) const;

 private:
  std::set<std::string, std::less<>> users_, hosts_, homes_;
};

}  // namespace lumelift
