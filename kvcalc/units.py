"""Units: exact rounding, and the one place where a number becomes text.

Memory is counted in whole bytes and shown in GiB (2**30); bandwidth is shown in decimal GB/s (10**9).
Demand rounds up and capacity rounds down, here and nowhere else.
"""

from __future__ import annotations

from fractions import Fraction

KIB = 2**10
MIB = 2**20
GIB = 2**30
GB = 10**9


def ceil_div(numerator: int, denominator: int) -> int:
    """Smallest whole number not below numerator / denominator.

    >>> ceil_div(17, 16), ceil_div(16, 16)
    (2, 1)
    """
    return -(-numerator // denominator)


def ceil_bits(bits: Fraction | int) -> int:
    """Whole bytes that hold this many bits, rounded up (demand).

    >>> ceil_bits(Fraction(9, 2) * 3)
    2
    """
    numerator, denominator = bits.numerator, bits.denominator
    return -(-numerator // (8 * denominator))


def _one_decimal(value: float) -> str:
    return f"{value:,.1f}" if abs(value) < 99.95 else f"{value:,.0f}"


def fmt_bytes(count: int | float, *, exact: bool = False) -> str:
    """Bytes as a person reads them: one decimal below 100, none from there on.

    >>> fmt_bytes(2_576_980_378), fmt_bytes(327_680), fmt_bytes(186 * 2**30), fmt_bytes(163_840, exact=True)
    ('2.4 GiB', '320 KiB', '186 GiB', '163,840 B')
    """
    if exact:
        return f"{round(count):,} B"
    for size, suffix in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        # A value that would print as "1,024.0" of the smaller unit is one of the larger.
        if abs(count) >= size * (1 - 0.00005 * 1024 / 1024):
            text = _one_decimal(count / size)
            return f"{text.removesuffix('.0')} {suffix}"
    return f"{round(count):,} B"


def fmt_gib(count: int | float, decimals: int = 1) -> str:
    """Bytes always in GiB, so that lines of one budget can be compared: '0.6 GiB', '33.88 GiB'; a true minus.

    >>> fmt_gib(33.88 * 2**30, 2), fmt_gib(173.4 * 2**30), fmt_gib(-1.5 * 2**30)
    ('33.88 GiB', '173 GiB', '−1.5 GiB')
    """
    value = count / GIB
    return f"{_one_decimal(value) if decimals == 1 else f'{value:,.{decimals}f}'} GiB".replace("-", "−")


def fmt_tokens(count: int) -> str:
    """Tokens, never rounded: 131,072."""
    return f"{count:,}"


def fmt_count(count: int) -> str:
    """Whole things: 1,024."""
    return f"{count:,}"


def fmt_rate(bytes_per_s: float) -> str:
    """Bandwidth in decimal units.

    >>> fmt_rate(3.35e12), fmt_rate(320e9)
    ('3.35 TB/s', '320 GB/s')
    """
    return f"{bytes_per_s / 1e12:.3g} TB/s" if bytes_per_s >= 1e12 else f"{bytes_per_s / 1e9:.4g} GB/s"


def fmt_ms(seconds: float, decimals: int = 0) -> str:
    """A time per token: '31 ms', '31.5 ms'. Below ten, one decimal, so that it is never '0 ms'."""
    value = seconds * 1e3
    return f"{value:,.{max(decimals, 1) if value < 10 else decimals}f} ms"


def fmt_ms_band(low_s: float, high_s: float) -> str:
    """A band of times per token with an en dash.

    >>> fmt_ms_band(0.0271, 0.0473), fmt_ms_band(0.0021, 0.0039)
    ('27–47 ms', '2.1–3.9 ms')
    """
    decimals = 1 if high_s * 1e3 < 10 else 0
    low, high = f"{low_s * 1e3:,.{decimals}f}", f"{high_s * 1e3:,.{decimals}f}"
    return f"{low} ms" if low == high else f"{low}–{high} ms"


def fmt_seconds(seconds: float) -> str:
    """A time with the digits that carry meaning.

    >>> [fmt_seconds(seconds) for seconds in (0.034, 0.21, 15, 186, 9_000, 500_000)]
    ['34 ms', '0.2 s', '15 s', '3.1 min', '2.5 h', '5.8 days']
    """
    if 0 < seconds < 0.05:
        return fmt_ms(seconds)
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:,.1f} s"


def fmt_seconds_band(low_s: float, high_s: float) -> str:
    """A band of seconds with an en dash, in one unit below a second.

    >>> fmt_seconds_band(1.2, 2.0), fmt_seconds_band(0.021, 0.12)
    ('1.2–2.0 s', '21–120 ms')
    """
    low, high = fmt_seconds(low_s), fmt_seconds(high_s)
    if low.endswith(" ms") and 0.05 <= high_s < 1:
        return fmt_ms_band(low_s, high_s)
    if low == high:
        return low
    low_unit, high_unit = low.rsplit(" ", 1)[1], high.rsplit(" ", 1)[1]
    return f"{low.rsplit(' ', 1)[0]}–{high}" if low_unit == high_unit else f"{low}–{high}"


def fmt_factor(ratio: float) -> str:
    """How many times: '6.8 times', '12 times'.

    >>> fmt_factor(6.84), fmt_factor(12.2), fmt_factor(8.0)
    ('6.8 times', '12 times', '8 times')
    """
    if ratio == round(ratio):
        return f"{ratio:,.0f} times"
    return f"{ratio:.1f} times" if ratio < 9.95 else f"{ratio:,.0f} times"


def fmt_ratio(value: float, decimals: int = 4) -> str:
    """A small number with the digits that carry meaning: '2', '0.5625', '1.0313'.

    >>> fmt_ratio(2.0), fmt_ratio(0.5625), fmt_ratio(4 / 3), fmt_ratio(33 / 32, 6)
    ('2', '0.5625', '1.3333', '1.03125')
    """
    return f"{value:,.{decimals}f}".rstrip("0").rstrip(".")


def fmt_cents(cents: Fraction | float) -> str:
    """US cents as dollars, small amounts with three digits that carry meaning.

    >>> fmt_cents(123_456), fmt_cents(250), fmt_cents(Fraction(1, 8))
    ('$1,235', '$2.50', '$0.00125')
    """
    dollars = float(cents) / 100
    if dollars >= 999.5:
        return f"${dollars:,.0f}"
    return f"${dollars:.2f}" if dollars >= 0.995 or not dollars else f"${dollars:.3g}"


def fmt_times(count: float) -> str:
    """Requests as an engine prints its own count of them.

    >>> fmt_times(6.19)
    '6.19 ×'
    """
    return f"{count:,.2f} ×"


def fmt_change(change: float, decimals: int = 0) -> str:
    """A difference with its sign, a true minus; nothing is signed that shows as zero.

    >>> fmt_change(-6880), fmt_change(0.912, 2), fmt_change(-0.001, 2)
    ('−6,880', '+0.91', '0.00')
    """
    size = f"{abs(change):,.{decimals}f}"
    if not any(digit in size for digit in "123456789"):
        return size
    return f"{'−' if change < 0 else '+'}{size}"


def fmt_divisor(factor: float) -> str:
    """What a step divides by, or multiplies by where it makes things larger.

    >>> fmt_divisor(8.0), fmt_divisor(2.5), fmt_divisor(0.125)
    ('÷ 8', '÷ 2.5', '× 8')
    """
    sign, value = ("÷", factor) if factor >= 1 else ("×", 1 / factor)
    return f"{sign} {value:.{0 if value >= 9.95 or abs(value - round(value)) < 0.05 else 1}f}"


def fmt_percent(ratio: float) -> str:
    """A share: '77%'; near either end one decimal, so that something is never '0%' and not quite all never '100%'.

    >>> fmt_percent(0.774), fmt_percent(0.004), fmt_percent(0.9987), fmt_percent(1.0)
    ('77%', '0.4%', '99.9%', '100%')
    """
    value = ratio * 100
    return f"{value:.1f}%" if 0 < value < 1 or 99.5 <= value < 99.95 else f"{value:.0f}%"


def fmt_params(count: int) -> str:
    """Parameters as vendors quote them.

    >>> fmt_params(70_553_706_496), fmt_params(8_030_261_248), fmt_params(494_032_768)
    ('70.6 B', '8.03 B', '494 M')
    """
    if count >= 10**9:
        value = count / 1e9
        return f"{value:.2f} B" if value < 10 else f"{value:,.1f} B" if value < 99.95 else f"{value:,.0f} B"
    return f"{count / 1e6:,.0f} M"


def in_sentence(label: str) -> str:
    """A label that begins with a number or a name stays, any other loses its capital.

    >>> in_sentence("Context limit"), in_sentence("CUDA graphs"), in_sentence("8 GPUs")
    ('context limit', 'CUDA graphs', '8 GPUs')
    """
    return label if label[:2].isupper() else label[:1].lower() + label[1:]


def fmt_bits(bits: Fraction) -> str:
    """Bits of a storage format: '4.5', '16', '4.156'."""
    return f"{float(bits):.4g}"
