#include "cli/report.hpp"
namespace lumelift { std::string render_html(const Report&, std::string_view s) { return std::string(s); } }
