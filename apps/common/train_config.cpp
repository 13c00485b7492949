// SPDX-License-Identifier: MIT
// apps/common/train_config.cpp - see the header.
#include "apps/common/train_config.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "core/check.h"
#include "core/one_line.h"
#include "core/regular_file.h"

namespace brigade::apps {
namespace {

constexpr std::string_view kPrefix = "BRIGADE_";

// Variables that say something else than the flag of their name would. $BRIGADE_DATA is a place to look
// (data/find_data.h).
constexpr std::array<std::string_view, 8> kOtherVariables{
    "BRIGADE_DATA",     "BRIGADE_HOST",   "BRIGADE_BUILD",        "BRIGADE_FAULT",
    "BRIGADE_LAUNCHER", "BRIGADE_PYTHON", "BRIGADE_SKIP_INSTALL", "BRIGADE_TEST_BACKEND"};

// Who sets one of a pair has decided against the other, as far as a weaker source has set that.
constexpr std::array<std::array<std::string_view, 2>, 3> kAlternatives{
    {{"--data", "--synthetic"}, {"--epochs", "--steps"}, {"--quiet", "--verbose"}}};

enum class Source : std::uint8_t { file, environment, flag };

struct Value {
  Source source;
  std::string text, where;
};
using Values = std::map<std::string, Value>;  // By flag.

std::string flag_of(const CLI::Option& option) { return "--" + option.get_lnames().front(); }
std::string key_of(const CLI::Option& option) { return option.get_lnames().front(); }
std::string variable_of(const CLI::Option& option) {
  std::string name(kPrefix);
  for (const char c : key_of(option))
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}
bool is_switch(const CLI::Option& option) { return option.get_items_expected_max() == 0; }

// Help groups of the program, in order.
std::vector<const CLI::App*> groups(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<const CLI::Option*> configurable(const CLI::App& app) {
  std::vector<const CLI::Option*> out;
  for (const CLI::App* group : groups(app))
    for (const CLI::Option* option : group->get_options())
      if (option->get_configurable()) out.push_back(option);
  return out;
}

const CLI::Option* find(const std::vector<const CLI::Option*>& options, const std::string& flag) {
  const auto at = std::find_if(options.begin(), options.end(),
                               [&](const CLI::Option* option) { return flag_of(*option) == flag; });
  return at == options.end() ? nullptr : *at;
}

std::string path_of_config(int argc, const char* const* argv) {
  CLI::App only;
  only.set_help_flag();
  only.allow_extras();
  std::string path;
  only.add_option("--config", path)->envname("BRIGADE_CONFIG");
  only.parse(argc, argv);
  return path;
}

// Whether `option` is on the command line. An argument that looks like a flag is one: CLI11 never takes it for a value.
bool given(const CLI::Option& option, int argc, const char* const* argv) {
  return std::any_of(argv + 1, argv + argc, [&](std::string_view argument) {
    const auto begins_with = [&](const std::string& flag) {
      return argument.starts_with(flag) && (argument.size() == flag.size() || argument[flag.size()] == '=');
    };
    const auto& shorts = option.get_snames();
    return begins_with(flag_of(option)) ||
           std::any_of(shorts.begin(), shorts.end(),
                       [&](const std::string& name) { return argument.starts_with("-" + name); });
  });
}

// CLI11's reader takes what it understands of a line: whether quotes and brackets are closed is for us to see.
bool is_closed(std::string_view line) {
  char quote = 0;
  int depth = 0;
  for (const char c : line) {
    if (quote != 0)
      quote = c == quote ? '\0' : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == '#')
      break;
    else
      depth += c == '[' ? 1 : c == ']' ? -1 : 0;
  }
  return quote == 0 && depth == 0;
}

Values read_file(const std::string& path, const std::vector<const CLI::Option*>& options) {
  const auto fail = [&](const std::string& what) -> void {
    throw CLI::ValidationError(str("--config ", path, ": ", one_line(what, 2000)));
  };
  const auto keys = [&] {
    std::string text;
    for (const CLI::Option* option : options) text += (text.empty() ? "" : ", ") + key_of(*option);
    return text;
  };
  constexpr std::int64_t kMaxBytes = 64 << 10;  // CLI11 copies what is left of a list for each of its items.
  std::string all;
  try {
    all = RegularFile(path, str("--config ", path, ": "), kMaxBytes).read_rest();
  } catch (const Error& error) {
    throw CLI::ValidationError(error.what());
  }
  std::istringstream file(all);
  std::string text;
  int number = 0;
  for (std::string line; std::getline(file, line); text += line + "\n") {
    if (++number; !is_closed(line))
      fail(str("line ", number, ": a quote or a bracket is not closed; got ", line));
    // CLI11 passes over lines of one or two letters.
    const std::string word = CLI::detail::trim_copy(line);
    if (!word.empty() && word.size() < 3 && word.front() != '#' && word.front() != ';')
      fail(str("line ", number, ": says nothing; got ", line));
  }
  Values values;
  std::istringstream stream(text);
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(stream)) {
    if (!item.parents.empty()) fail(str("has keys only, no sections; got [", item.parents.front(), "]"));
    std::string flag = "--" + item.name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    const CLI::Option* const option = find(options, flag);
    if (option == nullptr) fail(str("unknown key ", item.name, "; choose from ", keys()));
    const bool list = option->get_expected_max() > 1 || option->get_delimiter() != '\0';
    if (item.inputs.size() != 1 && !list)
      fail(str(item.name, ": takes one value, once; a text with spaces or commas needs quotes"));
    if (!values.emplace(flag, Value{Source::file, CLI::detail::join(item.inputs, ","), path}).second)
      fail(str(item.name, ": set twice"));
  }
  return values;
}

// CLI11 would count a switch that is off as given.
std::optional<bool> switch_of(const std::string& text) {
  try {
    return CLI::detail::to_flag_value(text) > 0;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// As an argument; nothing for what holds anyway. A file may state defaults of flags that do not go together with its
// others: --stem with an mlp.
std::optional<std::string> argument_for(const CLI::Option& option, const Value& value) {
  const std::string flag = flag_of(option);
  if (is_switch(option)) {
    const std::optional<bool> on = switch_of(value.text);
    if (!on) throw CLI::ValidationError(str(flag, ": needs true or false; got \"", value.text, "\""));
    return *on ? std::optional(flag) : std::nullopt;
  }
  if (value.text == option.get_default_str()) return std::nullopt;
  // CLI11 would take the argument behind "--lr=" for the value.
  if (value.text.empty()) throw CLI::ValidationError(str(flag, ": needs a value; got an empty one"));
  const bool bare = option.get_items_expected_min() == 0 && value.text == "true";  // --synthetic
  return flag + "=" + (bare ? "" : value.text);
}

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

void drop_weaker_alternatives(Values& values) {
  for (const auto& pair : kAlternatives) {
    const auto one = values.find(std::string(pair[0])), other = values.find(std::string(pair[1]));
    if (one == values.end() || other == values.end() || one->second.source == other->second.source) continue;
    values.erase(one->second.source < other->second.source ? one : other);
  }
}

bool other_is_set(const CLI::App& app, const std::string& flag) {
  for (const auto& pair : kAlternatives)
    for (const std::size_t i : {0, 1})
      if (flag == pair[i]) return app.count(std::string(pair[1 - i])) > 0;
  return false;
}

std::string toml(const std::string& flag, const std::string& text) {
  double number = 0;
  if (!text.empty() && CLI::detail::lexical_cast(text, number)) return text;
  // The reader ends a line at #, whatever stands around it, and knows no escapes.
  const bool quotes = text.find('"') != std::string::npos || text.find('\\') != std::string::npos;
  if (text.find_first_of("#\n") != std::string::npos || (quotes && text.find('\'') != std::string::npos))
    throw CLI::ValidationError(str(flag, ": a file for --config cannot carry ", text));
  return quotes ? "'" + text + "'" : "\"" + text + "\"";
}

std::string toml(const CLI::Option& option) {
  if (option.count() == 0)
    return is_switch(option) ? "false" : toml(flag_of(option), option.get_default_str());
  std::string out;
  for (const std::string& text : option.reduced_results()) {
    const bool bare = option.get_items_expected_min() == 0 && text.empty();
    out += (out.empty() ? "" : ", ") +
           (is_switch(option) || bare ? (text == "false" ? text : "true") : toml(flag_of(option), text));
  }
  return option.results().size() > 1 ? "[" + out + "]" : out;
}

// "TEXT:{cifar,imagenet}" -> "cifar imagenet"
std::string choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return "";
  std::string choices = type.substr(begin + 1, end - begin - 1);
  std::replace(choices.begin(), choices.end(), ',', ' ');
  return choices;
}

}  // namespace

Settings gather_settings(const CLI::App& app, int argc, const char* const* argv) {
  Settings settings;
  const auto options = configurable(app);
  const std::string path = path_of_config(argc, argv);
  Values values = path.empty() ? Values{} : read_file(path, options);
  if (is_set("BRIGADE_DATA")) values.erase("--data");  // It comes before the file as other variables do.

  std::set<std::string> known(kOtherVariables.begin(), kOtherVariables.end());
  known.insert("BRIGADE_CONFIG");
  for (const CLI::Option* option : options) {
    const std::string variable = variable_of(*option);
    const bool is_other =
        std::find(kOtherVariables.begin(), kOtherVariables.end(), variable) != kOtherVariables.end();
    // One that is empty counts as not set, as for most programs.
    if (!is_other && is_set(variable.c_str()))
      values[flag_of(*option)] = {Source::environment, std::getenv(variable.c_str()), variable};
    known.insert(variable);
    if (given(*option, argc, argv)) values[flag_of(*option)] = {Source::flag, "", ""};
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    if (name.starts_with(kPrefix) && !known.contains(name)) settings.unknown_variables.push_back(name);
  }

  drop_weaker_alternatives(values);
  for (const auto& [flag, value] : values) {
    if (value.source == Source::flag) continue;
    settings.sources[flag] = value.where;
    try {
      if (auto argument = argument_for(*find(options, flag), value)) settings.arguments.push_back(*argument);
    } catch (const CLI::ParseError& error) {
      throw CLI::ValidationError(with_sources(error.what(), settings));
    }
  }
  settings.arguments.insert(settings.arguments.end(), argv + 1, argv + argc);
  return settings;
}

std::string with_sources(const std::string& message, const Settings& settings) {
  std::string out = message;
  for (const auto& [flag, source] : settings.sources) {
    const auto is_part_of_name = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-';
    };
    for (std::size_t at = message.find(flag); at != std::string::npos; at = message.find(flag, at + 1)) {
      const std::size_t end = at + flag.size();
      if (end < message.size() && is_part_of_name(message[end])) continue;
      out += str("; ", flag, " comes from ", source);
      break;
    }
  }
  return out;
}

std::string config_text(const CLI::App& app, const Settings& settings) {
  std::string out = "# The configuration in effect, for --config FILE. Behind a value: what has set it.\n";
  for (const CLI::App* group : groups(app)) {
    std::string lines, unset;
    for (const CLI::Option* option : group->get_options()) {
      if (!option->get_configurable()) continue;
      const std::string flag = flag_of(*option);
      const bool has_default = is_switch(*option) || !option->get_default_str().empty();
      if (option->count() == 0 && (!has_default || other_is_set(app, flag))) {
        unset += (unset.empty() ? "" : ", ") + key_of(*option);
        continue;
      }
      const auto source = settings.sources.find(flag);
      const std::string where = source != settings.sources.end() ? "  # " + source->second
                                : option->count() > 0            ? "  # " + flag
                                                                 : "";
      lines += key_of(*option) + " = " + toml(*option) + where + "\n";
    }
    if (lines.empty() && unset.empty()) continue;
    out += str("\n# ", group->get_group(), "\n", lines, unset.empty() ? "" : "# not set: " + unset + "\n");
  }
  return out;
}

std::string bash_completion(const CLI::App& app) {
  std::string flags = "--help", cases;
  for (const CLI::App* group : groups(app))
    for (const CLI::Option* option : group->get_options()) {
      const std::string flag = flag_of(*option), choices = choices_of(*option),
                        type = option->get_type_name();
      flags += " " + flag;
      if (is_switch(*option) || option->get_items_expected_min() == 0) continue;
      const auto names = [&](const char* what) { return type.find(what) != std::string::npos; };
      const std::string how = !choices.empty() ? "-W '" + choices + "'"
                              : names("DIR")   ? "-d"
                              : names("FILE")  ? "-f"
                                               : "";
      cases += "    " + flag + ") " +
               (how.empty() ? "" : "COMPREPLY=($(compgen " + how + " -- \"$word\")); ") + "return ;;\n";
    }
  // Of "--flag=value" bash makes three words.
  return "# bash completion for " + app.get_name() + ": source <(" + app.get_name() +
         " --completion bash)\n_" + app.get_name() + "() {\n" +
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
         "  [[ $word == = ]] && word=\n"
         "  [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD - 2]}\n"
         "  case $before in\n" +
         cases + "  esac\n  COMPREPLY=($(compgen -W '" + flags + "' -- \"$word\"))\n}\ncomplete -F _" +
         app.get_name() + " " + app.get_name() + "\n";
}

}  // namespace brigade::apps
