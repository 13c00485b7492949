# SPDX-License-Identifier: MIT
# apps/bench/peers/resnet.py - models/resnet.h in plain PyTorch, for comparison: the same layers, stems and names.
from torch import nn
from torch.nn import functional


def convolution(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = convolution(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = convolution(outputs, outputs, 3), nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        self.downsample = nn.Sequential() if same else nn.Sequential(convolution(inputs, outputs, 1, stride),
                                                                     nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += self.downsample(x)
        return functional.relu(y, inplace=True)


class ResNet18(nn.Module):
    """stem: cifar (3x3) or imagenet (7x7 with stride 2, then max-pooling)."""

    def __init__(self, stem="cifar", classes=10):
        super().__init__()
        self.conv1 = convolution(3, 64, 3) if stem == "cifar" else convolution(3, 64, 7, 2)
        self.bn1 = nn.BatchNorm2d(64)
        self.pool = nn.Identity() if stem == "cifar" else nn.MaxPool2d(3, 2, 1)
        widths = (64, 64, 128, 256, 512)
        self.layers = nn.Sequential(*(
            nn.Sequential(BasicBlock(inputs, outputs, 1 if inputs == outputs else 2), BasicBlock(outputs, outputs, 1))
            for inputs, outputs in zip(widths, widths[1:])))
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = self.pool(functional.relu(self.bn1(self.conv1(x)), inplace=True))
        return self.fc(functional.adaptive_avg_pool2d(self.layers(x), 1).flatten(1))
