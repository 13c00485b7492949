// SPDX-License-Identifier: MIT
// tests/models/catalog_test.cpp - models by name.
#include "models/catalog.h"

#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;

TEST_CASE("every model of the catalog is made by its name", "[models][catalog]") {
  REQUIRE(models::model_names() == std::vector<std::string_view>{"resnet18", "resnet34", "mlp"});
  CHECK(count_parameters(*models::make_model("resnet18", {.classes = 10, .stem = "imagenet"})) == 11'181'642);
  CHECK(count_parameters(*models::make_model("resnet34", {.classes = 1000, .stem = "imagenet"})) ==
        21'797'672);
  const auto mlp = models::make_model("mlp", {.classes = 7, .image = {1, 4, 4}});
  CHECK((*mlp)(test::random({2, 1, 4, 4}, 1)).shape() == Shape{2, 7});
}

TEST_CASE("unknown models and stems list the choices", "[models][catalog][error]") {
  CHECK_THROWS_WITH(models::make_model("resnet50"),
                    ContainsSubstring("unknown model \"resnet50\"; choose from resnet18, resnet34, mlp"));
  CHECK_THROWS_WITH(models::make_model("resnet18", {.stem = "big"}),
                    ContainsSubstring("unknown stem \"big\"; choose from cifar, imagenet"));
}
