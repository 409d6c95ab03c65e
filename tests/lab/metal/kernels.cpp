// SIMULATION; see kernels.hpp.
#include "metal/kernels.hpp"

#include <cctype>
#include <cstdint>
#include <cstring>
#include <regex>

namespace lab::metal {
namespace {

constexpr unsigned long kSimdWidth = 32;

struct Function {
  std::string name;
  std::map<std::string, unsigned long> buffers;  // parameter name to index
  std::string thread;                            // the parameter with the position in the grid
  std::string body;                              // without blanks, `const`, `threadgroup_barrier`
};

std::string without_comments(const std::string& source) {
  static const std::regex comments(R"(//[^\n]*|/\*[\s\S]*?\*/|#[^\n]*)");
  return std::regex_replace(source, comments, " ");
}

std::string squeezed(const std::string& text) {
  static const std::regex noise(R"(\bconst\b|\bfloat\(0\)|\s+)");
  return std::regex_replace(text, noise, "");
}

std::vector<Function> functions_of(const std::string& source) {
  std::vector<Function> out;
  static const std::regex head(R"(kernel\s+void\s+(\w+)\s*\()");
  static const std::regex buffer(R"(\*\s*(\w+)\s*\[\[\s*buffer\((\d+)\)\s*\]\])");
  static const std::regex position(R"((\w+)\s*\[\[\s*thread_position_in_grid\s*\]\])");
  for (auto it = std::sregex_iterator(source.begin(), source.end(), head); it != std::sregex_iterator(); ++it) {
    const auto open = static_cast<size_t>(it->position() + it->length());
    const size_t brace = source.find('{', open);
    if (brace == std::string::npos) break;
    size_t end = brace + 1;
    for (int depth = 1; end < source.size() && depth; ++end) depth += source[end] == '{' ? 1 : source[end] == '}' ? -1 : 0;
    const std::string parameters = source.substr(open, brace - open);
    Function function;
    function.name = (*it)[1];
    for (auto p = std::sregex_iterator(parameters.begin(), parameters.end(), buffer); p != std::sregex_iterator(); ++p)
      function.buffers[(*p)[1]] = std::stoul((*p)[2]);
    std::smatch found;
    if (std::regex_search(parameters, found, position)) function.thread = found[1];
    function.body = squeezed(source.substr(brace + 1, end - brace - 2));
    out.push_back(std::move(function));
  }
  return out;
}

bool fits(const Buffers& buffers, unsigned long index, unsigned long floats) {
  const auto there = buffers.bytes.find(index);
  return there != buffers.bytes.end() && there->second >= floats * sizeof(float);
}

std::optional<unsigned long> index_of(const Function& function, const std::string& name) {
  const auto found = function.buffers.find(name);
  return found == function.buffers.end() ? std::nullopt : std::optional(found->second);
}

// float T=simd_sum(IN[i]);if(i==0)OUT[0]=T;   or   OUT[i]=simd_sum(IN[i]);
std::optional<Kernel> match_simd_sum(const Function& f) {
  static const std::regex first(R"((?:float|auto)(\w+)=simd_sum\((\w+)\[(\w+)\]\);if\(\3==0u?\)\{?(\w+)\[0\]=\1;\}?)");
  static const std::regex all(R"((\w+)\[(\w+)\]=simd_sum\((\w+)\[\2\]\);)");
  std::smatch m;
  std::optional<unsigned long> in, out;
  bool only_first = false;
  if (std::regex_match(f.body, m, first) && m[3] == f.thread) {
    in = index_of(f, m[2]);
    out = index_of(f, m[4]);
    only_first = true;
  } else if (std::regex_match(f.body, m, all) && m[2] == f.thread) {
    in = index_of(f, m[3]);
    out = index_of(f, m[1]);
  }
  if (!in || !out) return std::nullopt;
  Kernel kernel{f.name, KernelKind::simd_sum, {*in}, *out, {}};
  kernel.run = [in = *in, out = *out, only_first](const Buffers& b, unsigned long threads) {
    if (!fits(b, in, threads) || !fits(b, out, only_first ? 1 : threads)) return false;
    const float* from = b.at.at(in);
    for (unsigned long group = 0; group < threads; group += kSimdWidth) {
      const unsigned long end = std::min(group + kSimdWidth, threads);
      float sum = 0;
      for (unsigned long i = group; i < end; ++i) sum += from[i];
      if (only_first) {
        b.at.at(out)[0] = sum;
        break;
      }
      for (unsigned long i = group; i < end; ++i) b.at.at(out)[i] = sum;
    }
    return true;
  };
  return kernel;
}

// Two 8x8 loads, one multiply (with or without accumulation into zeroes), one store; every stride is 8.
std::optional<Kernel> match_matrix(const Function& f) {
  static const std::regex shape(R"(simdgroup_(?:float8x8|matrix<float,8,8>)[\w,=<>().]*;(?:simdgroup_float8x8[\w,=<>().]*;)*)"
                                R"(simdgroup_load\((\w+),(\w+),8\);simdgroup_load\((\w+),(\w+),8\);)"
                                R"((?:simdgroup_multiply\((\w+),\1,\3\)|simdgroup_multiply_accumulate\((\w+),\1,\3,\6\));)"
                                R"(simdgroup_store\((\w+),(\w+),8\);)");
  std::smatch m;
  if (!std::regex_match(f.body, m, shape)) return std::nullopt;
  const std::string product = m[5].matched ? m[5] : m[6];
  // An accumulator must have been filled with zeroes, or its value would be anything.
  if (m[6].matched && f.body.find(product + "=make_filled_simdgroup_matrix<float,8,8>(0") == std::string::npos) return std::nullopt;
  const auto a = index_of(f, m[2]), b = index_of(f, m[4]), out = index_of(f, m[8]);
  if (m[7] != product || !a || !b || !out) return std::nullopt;
  Kernel kernel{f.name, KernelKind::matrix, {*a, *b}, *out, {}};
  kernel.run = [a = *a, b = *b, out = *out](const Buffers& buffers, unsigned long threads) {
    if (threads < kSimdWidth || !fits(buffers, a, 64) || !fits(buffers, b, 64) || !fits(buffers, out, 64)) return false;
    float product_values[64];
    for (int row = 0; row < 8; ++row)
      for (int column = 0; column < 8; ++column) {
        float sum = 0;
        for (int k = 0; k < 8; ++k) sum += buffers.at.at(a)[row * 8 + k] * buffers.at.at(b)[k * 8 + column];
        product_values[row * 8 + column] = sum;
      }
    std::memcpy(buffers.at.at(out), product_values, sizeof product_values);
    return true;
  };
  return kernel;
}

float to_bfloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits += 0x7fff + (bits >> 16 & 1);  // round to nearest, ties to even
  bits &= 0xffff0000u;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Sums, differences and products over one variable, rounded to bfloat after each operation.
class Expression {
 public:
  Expression(const std::string& text, const std::string& variable) : text_(text), variable_(variable) {}

  std::optional<float> value(float x) {
    at_ = 0;
    good_ = true;
    const float result = sum(x);
    return good_ && at_ == text_.size() ? std::optional(result) : std::nullopt;
  }

 private:
  bool take(char c) { return at_ < text_.size() && text_[at_] == c && ++at_; }
  float sum(float x) {
    float value = product(x);
    for (;;) {
      if (take('+'))
        value = to_bfloat(value + product(x));
      else if (take('-'))
        value = to_bfloat(value - product(x));
      else
        return value;
    }
  }
  float product(float x) {
    float value = factor(x);
    while (take('*')) value = to_bfloat(value * factor(x));
    return value;
  }
  float factor(float x) {
    if (take('(')) {
      const float value = sum(x);
      good_ = take(')') && good_;
      return value;
    }
    if (text_.compare(at_, variable_.size(), variable_) == 0) {
      at_ += variable_.size();
      return x;
    }
    good_ = false;
    return 0;
  }

  const std::string& text_;
  const std::string& variable_;
  size_t at_ = 0;
  bool good_ = true;
};

// bfloat X=bfloat(IN[i]);OUT[i]=float(EXPRESSION over X);
std::optional<Kernel> match_bfloat(const Function& f) {
  static const std::regex shape(R"(bfloat(\w+)=bfloat\((\w+)\[(\w+)\]\);(\w+)\[\3\]=float\(([\w+*()-]+)\);)");
  std::smatch m;
  if (!std::regex_match(f.body, m, shape) || m[3] != f.thread) return std::nullopt;
  const std::string variable = m[1], text = m[5];
  const auto in = index_of(f, m[2]), out = index_of(f, m[4]);
  if (!in || !out || !Expression(text, variable).value(1.0F)) return std::nullopt;
  Kernel kernel{f.name, KernelKind::bfloat, {*in}, *out, {}};
  kernel.run = [in = *in, out = *out, variable, text](const Buffers& b, unsigned long threads) {
    if (!fits(b, in, threads) || !fits(b, out, threads)) return false;
    Expression expression(text, variable);
    for (unsigned long i = 0; i < threads; ++i) b.at.at(out)[i] = *expression.value(to_bfloat(b.at.at(in)[i]));
    return true;
  };
  return kernel;
}

}  // namespace

std::vector<Kernel> compile(const std::string& source, std::string& problem) {
  std::vector<Kernel> out;
  const auto functions = functions_of(without_comments(source));
  if (functions.empty()) problem = "program_source: error: no kernel function in the source";
  for (const auto& function : functions) {
    std::optional<Kernel> kernel = match_simd_sum(function);
    if (!kernel) kernel = match_matrix(function);
    if (!kernel) kernel = match_bfloat(function);
    if (!kernel) {
      problem = "program_source: error: simulated Metal does not know the kernel '" + function.name + "'";
      return {};
    }
    out.push_back(std::move(*kernel));
  }
  return out;
}

}  // namespace lab::metal
