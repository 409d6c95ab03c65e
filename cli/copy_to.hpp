#pragma once

#include "cli/copy_items.hpp"
#include "cli/copy_report.hpp"
#include "cli/large.hpp"
#include "cli/link.hpp"

namespace lumelift {

/// Copies files, folders and links of this Mac into a guest. What stands there already and is the same is left alone;
/// what differs is replaced by rename, so a program that runs from it keeps its file. Large files go beside each other
/// over connections of their own. Throws Error and sys::Interrupted; what was sent of large files stays beside their
/// destination.
class CopyIn {
 public:
  CopyIn(GuestLink& link, Console& console, Trust trust, unsigned connections)
      : link_(link), console_(console), trust_(trust), connections_(connections) {}
  /// `to`: absolute, "~/…", or relative to the guest user's home. Fills in the report, whose `dry_run` says that nothing
  /// is to be changed.
  void go(const std::vector<std::string>& sources, const std::string& to, CopyReport& report);

 private:
  struct Place {
    CopyItem item;
    std::string path;
    PathSeen seen;
    std::string stamp;
  };
  void find_places(const std::vector<std::string>& sources, const std::string& to);
  void look_at_places();
  void settle_known(CopyReport& report);
  void make_folders(CopyReport& report);
  void make_links(CopyReport& report);
  void send_small(CopyReport& report);
  void send_all_large(CopyReport& report);
  void keep_same(const Place& place, const std::string& sha256, CopyReport& report);

  GuestLink& link_;
  Console& console_;
  Trust trust_;
  unsigned connections_;
  std::string home_, base_;
  Manifest manifest_;
  std::vector<Place> places_;
  std::vector<const Place*> left_;  ///< files that have to be sent
  std::vector<std::pair<std::string, Manifest::Entry>> notes_;
};

/// The other way. `sources` as CopyIn's `to`.
void copy_out(GuestLink& link, Console& console, const std::vector<std::string>& sources, const std::string& to, CopyReport& report);

}  // namespace lumelift
