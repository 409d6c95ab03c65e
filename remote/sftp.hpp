#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "remote/session.hpp"

struct _LIBSSH2_SFTP;
struct _LIBSSH2_SFTP_HANDLE;

namespace lumelift {

/// A file that exists in the guest, open for writing over SFTP on a channel of its own. Many packets are on their way
/// at once, so a block of some megabytes goes at the speed of the connection. Lives no longer than its Session; same
/// thread. Throws Error: "guest-no-sftp" (the guest offers no SFTP, or refuses the file), "guest-write-refused" (with
/// the server's number; a full disk has none of its own in this protocol), and what Session throws.
class SftpFile {
 public:
  SftpFile(Session& session, const std::string& path, const sys::Deadline& deadline);
  ~SftpFile();
  SftpFile(const SftpFile&) = delete;
  SftpFile& operator=(const SftpFile&) = delete;

  /// Writes all of `bytes` at `offset`; returns when the guest has acknowledged them. The deadline is renewed by
  /// progress: it fails when nothing moved for 15 s.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Closes the file, with the guest's word that it did.
  void close(const sys::Deadline& deadline);

 private:
  [[noreturn]] void fail(const char* id, long rc);
  Session::State& session_;
  std::string path_;
  _LIBSSH2_SFTP* sftp_ = nullptr;
  _LIBSSH2_SFTP_HANDLE* handle_ = nullptr;
  std::uint64_t place_ = 0;
};

}  // namespace lumelift
