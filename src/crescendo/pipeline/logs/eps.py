"""How does a drawing become Encapsulated PostScript?

Plain PostScript text with a standard font that every printer has. The same drawing gives the same bytes: the file
contains no date.
"""

from crescendo.pipeline.logs.figure import BLACK, HEIGHT, WIDTH, Colour, Drawing, Label, Stroke

_PROLOGUE = f"""%!PS-Adobe-3.0 EPSF-3.0
%%Creator: crescendo
%%BoundingBox: 0 0 {WIDTH} {HEIGHT}
%%LanguageLevel: 2
%%EndComments
1 setlinecap 1 setlinejoin
/Helvetica findfont 14 scalefont setfont
/start {{ show }} def
/middle {{ dup stringwidth pop -2 div 0 rmoveto show }} def
/end {{ dup stringwidth pop neg 0 rmoveto show }} def
"""
_EPILOGUE = "showpage\n%%EOF\n"


def as_eps(drawing: Drawing) -> bytes:
    lines = [*map(_stroke, drawing.strokes), *map(_label, drawing.labels)]
    return (_PROLOGUE + "".join(f"{line}\n" for line in lines) + _EPILOGUE).encode("ascii")


def _stroke(stroke: Stroke) -> str:
    first, *others = stroke.positions
    path = f"newpath {first[0]:.2f} {first[1]:.2f} moveto"
    # A line of zero length with round caps is a dot.
    for x, y in others or [first]:
        path += f" {x:.2f} {y:.2f} lineto"
    return f"{_colour(stroke.colour)} {stroke.width:g} setlinewidth {path} stroke"


def _label(label: Label) -> str:
    rotation = "90 rotate " if label.upright else ""
    position = f"{label.x:.2f} {label.y:.2f} translate {rotation}0 0 moveto"
    return f"gsave {_colour(BLACK)} {position} ({_escaped(label.text)}) {label.anchor} grestore"


def _colour(colour: Colour) -> str:
    return " ".join(f"{part / 255:.3f}" for part in colour) + " setrgbcolor"


def _escaped(text: str) -> str:
    plain = text.encode("ascii", "replace").decode()
    plain = "".join(letter if letter.isprintable() else "?" for letter in plain)
    return plain.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
