// SPDX-License-Identifier: MIT
// models/fold.cpp - the steps of a residual network.
#include "models/fold.h"

#include "models/resnet.h"

namespace brigade::models {

int BasicBlock::fold_into(nn::FoldedNet& net, int x) const {
  int shortcut = x;
  if (downsample_.size() > 0)
    shortcut = net.add(x, dynamic_cast<const nn::Conv2d&>(downsample_[0]),
                       dynamic_cast<const nn::BatchNorm2d&>(downsample_[1]));
  const int y = net.add(x, conv1_, bn1_, {.relu = true});
  return net.add(y, conv2_, bn2_, {.relu = true, .residual = shortcut});
}

nn::FoldedNet ResNet::folded() const {
  nn::FoldedNet net;
  int y = net.add(0, conv1_, bn1_, {.relu = true});
  if (options_.stem == Stem::imagenet) y = net.add_max_pool(y, kStemPool);
  for (const nn::Sequential& layer : layers_)
    for (int i = 0; i < layer.size(); ++i) y = dynamic_cast<const BasicBlock&>(layer[i]).fold_into(net, y);
  net.finish(fc_);
  return net;
}

nn::FoldedNet fold(const nn::Module& model) {
  const auto* resnet = dynamic_cast<const ResNet*>(&model);
  BRIGADE_CHECK(resnet != nullptr,
                "fold: only residual networks have a form for inference (bf16 and int8 without batch norms); "
                "got another "
                "model; choose resnet18 or resnet34");
  return resnet->folded();
}

}  // namespace brigade::models
