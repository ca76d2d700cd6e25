package safehcl

// InvalidFromHere is for tests.
const InvalidFromHere = invalidFromHere
