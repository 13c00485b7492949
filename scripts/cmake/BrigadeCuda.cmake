# SPDX-License-Identifier: MIT
# Decides whether CUDA and NCCL are compiled in, says so in one line each, and sets BRIGADE_CUDA and BRIGADE_NCCL.
# ON: something missing ends the configuration, with the variable to set. AUTO: what is missing is said, and left out.
brigade_switch(BRIGADE_WITH_CUDA CUDAToolkit_ROOT cuDNN_ROOT)
brigade_switch(BRIGADE_WITH_NCCL NCCL_ROOT)
set(BRIGADE_CUDA_ARCHITECTURES "75;80;86;89;90;100;120" CACHE STRING
    "Compute capabilities times ten; newer devices compile the last one when they load it")

# brigade_decide(CUDA "why not, and what to set" or ""): sets BRIGADE_CUDA, or ends if the user insists.
macro(brigade_decide name why)
  if("${why}" STREQUAL "")
    set(BRIGADE_${name} ON)
  else()
    set(BRIGADE_${name} OFF)
    if(BRIGADE_WITH_${name} STREQUAL "ON")
      message(FATAL_ERROR "BRIGADE_WITH_${name}=ON, but ${why}")
    endif()
    message(STATUS "${name}: left out: ${why}")
  endif()
endmacro()

set(why "")
if(BRIGADE_WITH_CUDA STREQUAL "OFF")
  set(why "BRIGADE_WITH_CUDA=OFF")
elseif(NOT BRIGADE_CUDA_ARCHITECTURES MATCHES "^[0-9]+(;[0-9]+)*$")
  message(FATAL_ERROR "BRIGADE_CUDA_ARCHITECTURES: needs compute capabilities times ten, as 80;90; got "
                      "${BRIGADE_CUDA_ARCHITECTURES}")
else()
  find_package(CUDAToolkit QUIET)  # Looks at CUDAToolkit_ROOT, for nvcc on the PATH, in /usr/local/cuda.
  find_package(cuDNN QUIET)
  if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
    set(why "no CUDA toolkit was found; set CUDAToolkit_ROOT to its folder")
  elseif(CUDAToolkit_VERSION VERSION_LESS 12.8)
    set(why "CUDA ${CUDAToolkit_VERSION} is older than 12.8; set CUDAToolkit_ROOT to a newer toolkit's folder")
  elseif(NOT cuDNN_FOUND OR cuDNN_VERSION VERSION_LESS 9)
    set(why "no cuDNN 9 was found; set cuDNN_ROOT to a folder with include/cudnn.h and lib/libcudnn.so.9")
  else()
    # Whether nvcc works with this host compiler: asked in a project of its own: enable_language() would end ours.
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER} CACHE FILEPATH "The compiler that nvcc calls for host code")
    set(ENV{CUDACXX} ${CUDAToolkit_NVCC_EXECUTABLE})
    include(CheckLanguage)
    check_language(CUDA)
    if(NOT CMAKE_CUDA_COMPILER)
      set(why "${CUDAToolkit_NVCC_EXECUTABLE} does not work with ${CMAKE_CUDA_HOST_COMPILER}")
      string(APPEND why "; set CMAKE_CUDA_HOST_COMPILER (details in ${CMAKE_BINARY_DIR}/CMakeFiles)")
    endif()
  endif()
endif()
brigade_decide(CUDA "${why}")

if(BRIGADE_CUDA)
  # Machine code for each, and the last one's PTX beside it.
  set(CMAKE_CUDA_ARCHITECTURES ${BRIGADE_CUDA_ARCHITECTURES})
  list(POP_BACK CMAKE_CUDA_ARCHITECTURES last)
  list(TRANSFORM CMAKE_CUDA_ARCHITECTURES APPEND -real)
  list(APPEND CMAKE_CUDA_ARCHITECTURES ${last})
  if(BRIGADE_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${BRIGADE_CCACHE})
  endif()
  enable_language(CUDA)
  message(STATUS "CUDA: ${CUDAToolkit_VERSION} in ${CUDAToolkit_TARGET_DIR}, cuDNN ${cuDNN_VERSION} in "
                 "${CUDNN_LIBRARY}, for compute capabilities ${BRIGADE_CUDA_ARCHITECTURES}")
endif()

set(why "")
if(BRIGADE_WITH_NCCL STREQUAL "OFF")
  set(why "BRIGADE_WITH_NCCL=OFF")
elseif(NOT BRIGADE_CUDA)
  set(why "it needs CUDA (BRIGADE_WITH_CUDA)")
else()
  find_package(NCCL QUIET)
  if(NOT NCCL_FOUND OR NCCL_VERSION VERSION_LESS 2.18)
    set(why "no NCCL from 2.18 on was found; set NCCL_ROOT to a folder with include/nccl.h and lib/libnccl.so.2")
  endif()
endif()
brigade_decide(NCCL "${why}")
if(BRIGADE_NCCL)
  message(STATUS "NCCL: ${NCCL_VERSION}, ${NCCL_LIBRARY}")
endif()

# brigade_device_library(device_kernels SOURCES a.cu …): a shared library of device code, libbrigade_device_kernels.so.
# Shared, so that tests can put an emulated one in its place (tests/fake_gpu), and so that nvcc links nothing of ours.
function(brigade_device_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  add_library(brigade_${name} SHARED ${ARG_SOURCES})
  add_library(brigade::${name} ALIAS brigade_${name})
  target_include_directories(brigade_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  # CMake 3.25 does not know C++20 for nvcc.
  # 186: a comparison of an unsigned element with zero, in a functor for all types.
  target_compile_options(brigade_${name} PRIVATE -std=c++20 --expt-relaxed-constexpr -diag-suppress=186
    -Xcompiler=-Wall,-Wextra,-Wno-unknown-pragmas,-fvisibility=hidden
    "$<$<BOOL:${BRIGADE_WERROR}>:-Werror=all-warnings;-Xcompiler=-Werror>")
  target_link_libraries(brigade_${name} PUBLIC CUDA::cudart)
  target_link_options(brigade_${name} PRIVATE -Wl,--enable-new-dtags)
  set_target_properties(brigade_${name} PROPERTIES CUDA_RUNTIME_LIBRARY Shared CUDA_STANDARD_REQUIRED OFF
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
endfunction()
