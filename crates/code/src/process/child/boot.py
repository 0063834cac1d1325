import sys
if sys.version_info < (3, 9):
    sys.stdout.write('{"type": "unsupported", "version": "%d.%d.%d"}\n' % sys.version_info[:3])
    sys.stdout.flush()
else:
    exec(compile(@CHILD@, "<runner>", "exec"), {"__name__": "<runner>", "REPUBLIC": @REPUBLIC@,
        "MAX_DEPTH": @MAX_DEPTH@, "MAX_VALUE_BYTES": @MAX_VALUE_BYTES@})
