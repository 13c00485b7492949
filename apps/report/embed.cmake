# SPDX-License-Identifier: MIT
# apps/report/embed.cmake - cmake -DFOLDER=… -DSCRIPTS=a.js,b.js -DOUT=page_files.cpp -P embed.cmake
# writes the page's files into a C++ file as raw strings.

# A literal: the sequence )brigade" stands in no file of the page.
function(read_literal file out)
  file(READ ${FOLDER}/${file} text)
  string(FIND "${text}" ")brigade\"" at)
  if(NOT at EQUAL -1)
    message(FATAL_ERROR "${file} holds the end of a raw string")
  endif()
  set(${out} "R\"brigade(${text})brigade\"" PARENT_SCOPE)
endfunction()

read_literal(page.html html)
read_literal(page.css style)
set(scripts "")
string(REPLACE "," ";" SCRIPTS "${SCRIPTS}")
foreach(script IN LISTS SCRIPTS)
  read_literal(${script} literal)
  string(APPEND scripts "    ${literal},\n")
endforeach()
file(WRITE ${OUT} "// Made by apps/report/embed.cmake.\n#include \"apps/report/page_files.h\"\n
namespace brigade::report {
namespace {\nconstexpr std::string_view kScripts[] = {\n${scripts}};\n}  // namespace
const std::string_view kPageHtml = ${html};
const std::string_view kPageStyle = ${style};
const std::span<const std::string_view> kPageScripts = kScripts;
}  // namespace brigade::report\n")
