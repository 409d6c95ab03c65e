#include "remote/sftp.hpp"

#include <fmt/format.h>
#include <libssh2.h>
#include <libssh2_sftp.h>

#include "host/sys/error.hpp"
#include "remote/session_state.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;

constexpr auto doing = "write a file in the guest";
constexpr sys::Milliseconds greeting_limit{10'000};

}  // namespace

SftpFile::SftpFile(Session& session, const std::string& path, const sys::Deadline& deadline) : session_(*session.state_), path_(path) {
  long begun = 0;
  try {
    begun = session_.drive(doing, deadline.at_most(greeting_limit), [&]() -> long {
      sftp_ = libssh2_sftp_init(session_.ssh);
      return sftp_ != nullptr ? 0 : libssh2_session_last_errno(session_.ssh);
    });
  } catch (const Error& error) {
    // A server program that ends at once is not noticed by the library, which goes on waiting for its greeting.
    if (error.id() != "guest-timeout") {
      throw;
    }
    throw Error(ErrorKind::failed, "guest-no-sftp", "the guest's SFTP server does not answer");
  }
  if (begun != 0) {
    fail("guest-no-sftp", begun);
  }
  const auto opened = session_.drive(doing, deadline, [&]() -> long {
    handle_ = libssh2_sftp_open_ex(sftp_, path.data(), static_cast<unsigned>(path.size()), LIBSSH2_FXF_WRITE, 0, LIBSSH2_SFTP_OPENFILE);
    return handle_ != nullptr ? 0 : libssh2_session_last_errno(session_.ssh);
  });
  if (opened != 0) {
    fail("guest-no-sftp", opened);
  }
}

SftpFile::~SftpFile() {
  if (sftp_ == nullptr) {
    return;
  }
  // One try, without waiting: what is left goes with the session.
  const auto can_try = [this] { return !session_.dead && !session_.send_blocked; };
  if (handle_ != nullptr && can_try() && libssh2_sftp_close_handle(handle_) != LIBSSH2_ERROR_EAGAIN) {
    handle_ = nullptr;
  }
  if (handle_ != nullptr || !can_try() || libssh2_sftp_shutdown(sftp_) == LIBSSH2_ERROR_EAGAIN) {
    session_.open_files.push_back({sftp_, handle_});
  }
}

void SftpFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (offset != place_) {
    libssh2_sftp_seek64(handle_, offset);
  }
  auto deadline = sys::Deadline::in(15s);
  session_.expect_answer();
  while (!bytes.empty()) {
    sys::check_interrupt();
    const auto rc = session_.attempt(
        doing, deadline, [&]() -> long { return libssh2_sftp_write(handle_, reinterpret_cast<const char*>(bytes.data()), bytes.size()); });
    if (rc > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(rc));
      offset += static_cast<std::uint64_t>(rc);
      deadline = sys::Deadline::in(15s);
    } else if (rc == LIBSSH2_ERROR_EAGAIN || rc == 0) {
      session_.wait(doing, deadline);
    } else {
      fail("guest-write-refused", rc);
    }
  }
  place_ = offset;
}

void SftpFile::close(const sys::Deadline& deadline) {
  const auto closed = session_.drive(doing, deadline, [&]() -> long { return libssh2_sftp_close_handle(handle_); });
  handle_ = nullptr;
  if (closed != 0) {
    fail("guest-write-refused", closed);
  }
  const auto ended = session_.drive(doing, deadline, [&]() -> long { return libssh2_sftp_shutdown(sftp_); });
  sftp_ = nullptr;
  if (ended != 0) {
    fail("guest-write-refused", ended);
  }
}

void SftpFile::fail(const char* id, long rc) {
  if (session_.lost(rc)) {
    session_.fail(doing, rc);
  }
  const auto code = sftp_ != nullptr ? libssh2_sftp_last_error(sftp_) : 0;
  throw Error(ErrorKind::failed, id,
              fmt::format("cannot write {} over SFTP: {} (libssh2 {}, SFTP {})", path_, session_.library_message(), rc, code));
}

}  // namespace lumelift
