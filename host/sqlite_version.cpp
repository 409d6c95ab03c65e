#include "host/sqlite_version.hpp"

#include <sqlite3.h>

namespace lumelift {

std::string sqlite_version() {
  return sqlite3_libversion();
}

}  // namespace lumelift
