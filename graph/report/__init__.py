"""Report: one page without a network that shows what a call of a compiled graph takes."""

from .report_contents import gather as gather
from .report_data import Report as Report, Searched as Searched
from .report_page import page as page, write as write
