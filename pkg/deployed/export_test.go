package deployed

// OpenBy is Open with another client of AWS.
var OpenBy = open
