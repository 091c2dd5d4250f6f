"""The knowledge: one file per op family. Importing this package enters every op by name."""
import importlib, pathlib
for _p in sorted(pathlib.Path(__file__).parent.glob("*.py")):
    if _p.stem != "__init__":
        try: importlib.import_module("." + _p.stem, __name__)
        except Exception as e: print("SKIP", _p.stem, repr(e)[:200])
