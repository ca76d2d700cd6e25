package monorepo

var ClaimWithin = claimWithin
