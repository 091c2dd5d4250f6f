"""Hardware as data: a TOML file per type of machine, its record, and what communication costs."""

from .hardware_files import SHIPPED as SHIPPED, THIS_MACHINE as THIS_MACHINE, read as read
from .hardware_record import Curve as Curve, Hardware as Hardware, Link as Link
