# SPDX-License-Identifier: MIT
# Finds oneDNN by header and library. Debian's own CMake package demands OpenCL headers that it does not depend on.
# Defines DNNL::dnnl and DNNL_VERSION.
find_path(DNNL_INCLUDE_DIR dnnl.hpp)
find_library(DNNL_LIBRARY dnnl)
foreach(header dnnl_version.h oneapi/dnnl/dnnl_version.h)
  if(EXISTS ${DNNL_INCLUDE_DIR}/${header})
    file(STRINGS ${DNNL_INCLUDE_DIR}/${header} lines REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
    string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
    if(numbers)
      string(REPLACE ";" "." DNNL_VERSION "${numbers}")
    endif()
  endif()
endforeach()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DNNL REQUIRED_VARS DNNL_LIBRARY DNNL_INCLUDE_DIR VERSION_VAR DNNL_VERSION)
if(DNNL_FOUND AND NOT TARGET DNNL::dnnl)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
endif()
