-- Where a job stands in its lane: its score is in the range of its priority, at its number.
local STEP = 2 ^ 45 -- distance of priorities: numbers reach half of it to either side; 201 of them fit in a double
local SUSPECT = 256 * STEP -- above any score; subtracted from the scores of suspects in `alone`, to make them negative
