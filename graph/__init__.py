"""Graph: capture, stage, plan and run a training step."""
