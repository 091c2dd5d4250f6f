"""Names and import paths of torch and OneFlow: what they lead to here, or what to use instead."""
