# Must parse in any version of Python, so that one that is too old can report it. The arguments are paths of other
# interpreters to try.
def start(main):
    import os
    import sys

    if sys.version_info < (3, 8):
        others = sys.argv[1:]
        if others:
            os.execv(others[0], [others[0], __file__] + others[1:])
        sys.exit(
            "Python %d.%d (%s) is too old: execute_code needs 3.8 or newer; install it, or choose an image that "
            "has it" % (sys.version_info[0], sys.version_info[1], sys.executable)
        )
    script = os.path.join(os.path.dirname(__file__), "script.py")
    with open(script, "rb") as file:
        text = file.read()
    sys.argv = [script]
    # Last, so that no file of a project shadows a module of the standard library.
    sys.path.append(os.getcwd())
    # Printed lines must not be lost when the program is killed.
    sys.stdout.reconfigure(line_buffering=True)
    del main["start"]
    main["__file__"] = script
    try:
        exec(compile(text, script, "exec", 0, True), main)
    except Exception as error:
        error.__traceback__ = error.__traceback__.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


start(globals())
