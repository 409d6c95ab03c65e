#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/sys/error.hpp"

namespace lumelift {

/// Text from outside made fit for a terminal: control characters (C0, C1, DEL, escapes, bidirectional overrides) and invalid
/// UTF-8 become visible marks, at most `cap` bytes. Newlines and tabs stay.
[[nodiscard]] std::string cleaned(std::string_view text, std::size_t cap = 64u << 10);

enum class ColorMode { automatic, always, never };
enum class Style { plain, good, warn, bad, dim, bold };

/// The only writer to standard output and standard error. stdout carries the result and nothing else; progress, warnings and
/// errors go to stderr. Colour and redrawn lines only on a terminal and without NO_COLOR. Cleans everything it is given.
class Console {
 public:
  struct Options {
    bool json = false;
    int verbosity = 0;  ///< -1 quiet, 0, 1 verbose
    ColorMode color = ColorMode::automatic;
    bool no_color_env = false;  ///< NO_COLOR is set and not empty
  };
  explicit Console(Options options);

  [[nodiscard]] bool json() const { return options_.json; }
  [[nodiscard]] bool verbose() const { return options_.verbosity > 0; }

  /// Result text on stdout (ends with a newline). Not called under json().
  void result(std::string_view text);
  /// The result object on stdout under json(): one line of JSON text, already rendered.
  void result_json(std::string_view object);

  /// Bytes of a program that runs for the user, as they are. Throws Error "output-closed" when nobody reads them any more,
  /// "output-unwritable" when they cannot be written for another reason.
  enum class Stream { out, err };
  void pass(std::string_view bytes, Stream stream);

  /// One line of progress on stderr: "  copy      liblumelift-metal.dylib  34 kB". `verb` is padded to the column.
  void step(std::string_view verb, std::string_view text);
  /// A plain line on stderr (not under --quiet).
  void say(std::string_view text);
  void warn(std::string_view text);
  /// Only with --verbose.
  void detail(std::string_view text);
  /// Error in full: "error[id]: message", details, fix; under json() also one error object on stdout.
  void error(const Error& error);
  /// The same on stderr alone: one failure of several, which the result object tells of.
  void complain(const Error& error);
  /// The object of an interrupted command under json(), unless its result was told already; the words are the command's own.
  void interrupted();

  /// What a command is for: its answer, or what it does.
  enum class Purpose { answer, act };
  /// At the end: the exit status, which is no success when a result could not be written; says so. Whoever closes the output of a
  /// command that acts did not want to read it: that is no failure.
  [[nodiscard]] int finish(int status, Purpose purpose = Purpose::act);

  /// A redrawn bar on a terminal after one second, nothing elsewhere. `done` of `total` bytes.
  void progress(std::string_view what, std::uint64_t done, std::uint64_t total);
  void end_progress();

  /// Text for stdout with colour where stdout has it.
  [[nodiscard]] std::string styled(std::string_view text, Style style) const;
  [[nodiscard]] bool stdout_is_terminal() const { return out_tty_; }
  [[nodiscard]] bool stderr_is_terminal() const { return err_tty_; }

 private:
  void line(std::string_view text);
  void answer(std::string_view text);
  Options options_;
  bool out_tty_ = false, err_tty_ = false;
  bool out_color_ = false, err_color_ = false;
  bool bar_shown_ = false, answered_ = false;
  int lost_ = 0;  ///< errno of the write on stdout that failed
  bool loss_told_ = false;
  std::int64_t bar_started_ms_ = 0, bar_drawn_ms_ = 0;
};

/// Rows to aligned columns, two blanks between, UTF-8 aware; the last column is not padded. `right` names columns to align right.
[[nodiscard]] std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<std::size_t>& right = {});

/// "34 kB", "5.2 MB", "668 MB", "1.2 GB" (powers of ten).
[[nodiscard]] std::string shown_bytes(std::uint64_t bytes);

}  // namespace lumelift
