# SPDX-License-Identifier: MIT
# Finds cuDNN by header and library: beside the CUDA toolkit, or below cuDNN_ROOT (PyTorch's copy, for example, is
# site-packages/nvidia/cudnn, which has libcudnn.so.9 and no libcudnn.so). Defines cuDNN::cudnn and cuDNN_VERSION.
find_path(CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR})
if(CUDNN_INCLUDE_DIR)
  file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h lines REGEX "#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) +[0-9]+")
  string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
  string(REPLACE ";" "." cuDNN_VERSION "${numbers}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(cuDNN REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR VERSION_VAR cuDNN_VERSION)
if(cuDNN_FOUND AND NOT TARGET cuDNN::cudnn)
  add_library(cuDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(cuDNN::cudnn PROPERTIES IMPORTED_LOCATION ${CUDNN_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${CUDNN_INCLUDE_DIR})
endif()
