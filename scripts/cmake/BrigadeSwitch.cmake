# SPDX-License-Identifier: MIT
# brigade_switch(BRIGADE_WITH_X ROOT…): a cache variable that is AUTO, ON or OFF, by whichever of CMake's names for the
# latter two. Ends the configuration for other values, and where a ROOT, which says where to look for X, is no folder:
# what is found elsewhere would not be what was asked for.
macro(brigade_switch name)
  set(${name} AUTO CACHE STRING "AUTO, ON or OFF")
  set_property(CACHE ${name} PROPERTY STRINGS AUTO ON OFF)
  string(TOUPPER "${${name}}" ${name})
  if("${${name}}" MATCHES "^(1|YES|TRUE|Y)$")
    set(${name} ON)
  elseif("${${name}}" MATCHES "^(0|NO|FALSE|N)$")
    set(${name} OFF)
  elseif(NOT "${${name}}" MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${name}: must be AUTO, ON or OFF; got \"${${name}}\"")
  endif()
  foreach(root ${ARGN})
    if(DEFINED ${root} AND NOT ${name} STREQUAL "OFF" AND NOT IS_DIRECTORY "${${root}}")
      message(FATAL_ERROR "${root}: ${${root}} is no folder; give another, or leave it out")
    endif()
  endforeach()
endmacro()
