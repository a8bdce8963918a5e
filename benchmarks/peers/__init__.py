"""Other people's software on partrain's main task: the same network, data and target, each tuned by one rule."""
