-- Where a job stands in its lane: the range of its priority, and in it its number.
local STEP = 2 ^ 45 -- from one priority to the next: numbers to half of it on either side; 201 of them fit in a double
local SUSPECT = 256 * STEP -- less than any score; suspects stand in `alone` by their score minus this, so below zero
