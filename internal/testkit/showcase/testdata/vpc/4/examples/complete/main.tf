variable "region" {
  type        = string
  default     = "eu-west-1"
  description = "Region of the example."
}

provider "aws" {
  region = var.region
}

module "vpc" {
  source = "../.."

  name                    = "complete"
  cidr_block              = "10.20.0.0/16"
  secondary_cidr_blocks   = ["100.64.0.0/16"]
  nat_gateways            = "one_per_zone"
  flow_log_retention_days = 0

  subnets = {
    public = { type = "public", availability_zones = ["${var.region}a", "${var.region}b", "${var.region}c"] }
    app    = { type = "private", availability_zones = ["${var.region}a", "${var.region}b", "${var.region}c"] }
    db     = { type = "isolated", availability_zones = ["${var.region}a", "${var.region}b", "${var.region}c"] }
  }
}
