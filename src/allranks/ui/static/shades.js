// Cividis: people with any colour vision tell it apart, and it rises in lightness.
const SCALE = [[0, 34, 78], [53, 69, 108], [124, 123, 120], [188, 175, 111], [254, 232, 56]];

export function shade(share) {
  const place = Math.max(0, Math.min(1, share)) * (SCALE.length - 1);
  const low = Math.min(SCALE.length - 2, Math.floor(place));
  return SCALE[low].map((each, n) => each + (place - low) * (SCALE[low + 1][n] - each));
}
