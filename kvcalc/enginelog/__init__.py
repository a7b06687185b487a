"""An engine's start-up log: what it says about memory, and a scenario that agrees with it.

``parse`` reads the text; ``calibrate`` puts what it measured into a scenario in place of the estimates.
"""

from kvcalc.enginelog.calibration import Calibration, as_logged, calibrate
from kvcalc.enginelog.facts import EngineLog, LogLine, Reading
from kvcalc.enginelog.parsing import parse

__all__ = ["Calibration", "EngineLog", "LogLine", "Reading", "as_logged", "calibrate", "parse"]
